"""Reader of Mooncake JSONL traces (kvcache-ai/Mooncake, FAST'25 release)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import override

from pipeline.trace.draws import uniforms
from pipeline.trace.file_source import FileSource
from pipeline.trace.json_rows import ObjectLines, keys_of, member
from pipeline.trace.ledger import CHANGED, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.rows import LineParser, Row, RowError, block_ids, full_blocks, time_ns, tokens

GROUP_BLOCKS = 2
MILLISECOND_S = 1e-3


class MooncakeTrace(FileSource):
    """One JSON object a line: timestamp (ms), input_length, output_length (tokens), hash_ids (prefix-chained blocks).

    Blocks: the release lists ceil(input / 512) ids, the last one of a partial block unless the prompt fills it. Only
    full blocks can be shared, so that last id is dropped; a list of floor(input / 512) ids is taken as it is, any
    other length is refused. Blocks of outputs are not known.
    Sessions: the trace has none. Requests that agree in their first two ids form a prefix group, and that stands in
    for the session (so a session here is not one user's, and groups are open loop).
    Times: the conversation trace is stamped in buckets of about 3 s. With spread_time_buckets each seed spreads
    arrivals uniformly over their bucket, in their order; a bucket is as wide as the median gap between distinct times,
    or as the gap to the next one if that is smaller. Leave it off where times are exact.
    has_hashes: false reads the file without its prefixes, for instance if it has no hash_ids.
    """

    spread_time_buckets: bool
    has_hashes: bool

    def lists_blocks(self) -> bool:
        """Whether hash_ids are used."""
        return self.has_hashes

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the first line is an object with its fields, and those of no chat."""
        found = keys_of(lines)
        return {"timestamp", "input_length", "output_length"} <= found and "chat_id" not in found

    @override
    def parser(self) -> LineParser:
        """Return the parser of a line."""
        return ObjectLines(self._row)

    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Read the file; which arrivals each seed will spread is counted."""
        trace = super().requests(seed, ledger, read)
        if self.spread_time_buckets and np.unique(trace.arrival_s).size > 1:
            ledger.add_all(CHANGED + "arrival spread inside its time bucket", trace.request_id)
        return trace

    def jittered(self, trace: RequestTrace, seed: int) -> RequestTrace:
        """Spread the time buckets, if that is asked for."""
        return spread_buckets(trace, seed) if self.spread_time_buckets else trace

    def _row(self, record: dict[str, Any]) -> Row:
        arrival_ns = time_ns(member(record, "timestamp"), "timestamp", MILLISECOND_S)
        inputs = tokens(member(record, "input_length"), "input_length", 1)
        outputs = tokens(member(record, "output_length"), "output_length", 0)
        if not self.has_hashes:
            return Row(arrival_ns, inputs, outputs)
        if record.get("hash_ids") is None:
            raise RowError("hash_ids", "missing (trace.has_hashes=false reads the trace without prefixes)")
        ids = block_ids(record["hash_ids"], "hash_ids")
        full = full_blocks(ids, "hash_ids", inputs, self.block_tokens)
        group = tuple(ids[:GROUP_BLOCKS]) or None
        return Row(arrival_ns, inputs, outputs, group, block_ids=full)


def spread_buckets(trace: RequestTrace, seed: int, width_s: float | None = None) -> RequestTrace:
    """Spread arrivals uniformly over their time bucket, order kept; draws are keyed by seed and position.

    width_s: of a bucket; None: the median gap. The first arrival stays at 0. Nothing changes if all times are equal and
    no width is given: no gap says how wide a bucket is.
    """
    times, bucket = np.unique(trace.arrival_s, return_inverse=True)
    if times.size < 2 and width_s is None:
        return trace
    gaps = np.diff(times)
    widths = np.minimum(np.append(gaps, np.inf), np.median(gaps) if width_s is None else width_s)
    draws = uniforms(seed, "mooncake.spread", trace.request_count)
    draws = draws[np.lexsort((draws, bucket))]
    # The last bit of a sum may reach past the next bucket's start.
    arrival_s = np.maximum.accumulate(times[bucket] + draws * widths[bucket])
    return replace(trace, arrival_s=arrival_s - arrival_s[0])
