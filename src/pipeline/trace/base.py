"""What a source of requests is: a reader of a file, or a generator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import Field

from pipeline.spec import Count, InputError, Spec
from pipeline.trace.blocks import number_blocks
from pipeline.trace.ledger import CHANGED, DROPPED, KEPT, NOTED, READ, Ledger
from pipeline.trace.lines import ReadLines, open_lines
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.selection import TooLong, fit_context

GENERATED = "generated"


@dataclass(frozen=True)
class LoadedTrace:
    """A trace and, in schema.TRACE_QUALITY, what became of every row of its source."""

    trace: RequestTrace
    quality: pa.Table


class TraceSource(Spec):
    """Yields a trace. A subclass writes `requests`; what follows is the same for all.

    name: of the trace, in results, and of its only class where the source names none. too_long: what becomes of a
    request that the model's context cannot hold (see selection.fit_context).
    """

    name: str = Field(min_length=1)
    block_tokens: Count = Field(le=2**20, description="tokens per block of its hashes or, without any, of the KV cache")
    too_long: TooLong

    def file(self) -> Path | None:
        """File that must exist and whose content belongs to the result; None for a generator."""
        return None

    def assumed(self) -> str:
        """What of the traffic is not known but assumed, in one sentence; "" if nothing is."""
        return ""

    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Return the requests by arrival, request_id = row number, block_ids = any 64-bit ids of the full blocks.

        Rows read, and those dropped here, are counted in `ledger`.
        """
        raise NotImplementedError

    def window(self, trace: RequestTrace, ledger: Ledger) -> RequestTrace:
        """Cut the trace to the part that is asked for; everything, unless a subclass has such an option."""
        _ = ledger
        return trace

    def jittered(self, trace: RequestTrace, seed: int) -> RequestTrace:
        """Return a loaded trace as the simulation of `seed` meets it; as it is, unless a subclass draws its times."""
        _ = seed
        return trace

    def load(self, seed: int, max_context_tokens: int, read: ReadLines = open_lines) -> LoadedTrace:
        """Read or generate the trace for a model of `max_context_tokens`.

        The result depends on the arguments, the options and the file alone; that of a file on no seed, so that it is
        read once for all of them (`jittered` is what they differ in). Raises InputError, naming file and row,
        for what cannot be read, and where no request is left.
        """
        path = self.file()
        ledger = Ledger(self.name, GENERATED if path is None else str(path), seed)
        trace = self.requests(seed, ledger, read)
        trace = fit_context(trace, max_context_tokens, self.too_long, ledger)
        trace = self.window(trace, ledger)
        if not trace.request_count:
            raise InputError(_nothing_left(ledger))
        return LoadedTrace(_finish(trace, ledger), ledger.table())


def _nothing_left(ledger: Ledger) -> str:
    counts = ledger.counts()
    reasons = [f"{n} {reason.removeprefix(DROPPED)}" for reason, n in counts.items() if reason.startswith(DROPPED)]
    if not reasons:
        return f"{ledger.path}: holds no rows, expected at least one request"
    return f"{ledger.path}: no request is left of {counts[READ]} rows; dropped: {', '.join(reasons)}"


def _finish(trace: RequestTrace, ledger: Ledger) -> RequestTrace:
    rows = trace.request_id
    numbers, moved = number_blocks(trace.block_offset, trace.block_ids.view(np.uint64))
    ledger.add_all(CHANGED + "block id met under another prefix, numbered as another block", rows[moved])
    ledger.add_all(NOTED + "one output token, so no time per output token", rows[trace.output_tokens == 1])
    ledger.add_all(KEPT, rows)
    return replace(
        trace,
        request_id=np.arange(trace.request_count),
        arrival_s=trace.arrival_s - trace.arrival_s[0],
        block_ids=numbers,
    )
