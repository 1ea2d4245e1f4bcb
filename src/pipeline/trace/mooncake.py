"""Reader of Mooncake JSONL traces (kvcache-ai/Mooncake, FAST'25 release)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from pipeline.trace.draws import uniforms
from pipeline.trace.file_source import FileSource
from pipeline.trace.json_rows import json_object, keys_of, member
from pipeline.trace.ledger import CHANGED, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.rows import MOST_NS, LineParser, Row, RowError, block_ids, full_blocks, shown, time_ns, tokens

GROUP_BLOCKS = 2
BUCKETED_RATIO = 0.5
"""Share of distinct times below which they are taken for buckets, where nothing is said."""
MILLISECOND_S = 1e-3


class MooncakeTrace(FileSource):
    """One JSON object a line: timestamp (ms), input_length, output_length (tokens), hash_ids (prefix-chained blocks).

    Blocks: the release lists ceil(input / 512) ids, the last one of a partial block unless the prompt fills it. Only
    full blocks can be shared, so that last id is dropped; a list of floor(input / 512) ids is taken as it is, any
    other length is refused. Blocks of outputs are not known.
    Sessions: the release has none. Requests that agree in their first two ids form a prefix group, and that stands in
    for the session (so a session here is not one user's, and groups are open loop). A file whose rows carry session_id,
    as Dynamo's multi-turn traces do, has those; a row with `delay` (ms) comes so long after the answer before it in its
    session, closed loop, and may leave its timestamp out.
    Times: the conversation trace is stamped in buckets of about 3 s. With spread_time_buckets each seed spreads
    arrivals uniformly over their bucket, in their order; a bucket is as wide as the median gap between distinct times,
    or as the gap to the next one if that is smaller. Turn it off where times are exact; `auto` spreads where fewer
    than half of the times differ.
    has_hashes: false reads the file without its prefixes, for instance if it has no hash_ids.
    """

    spread_time_buckets: bool | Literal["auto"]
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
        return _Lines(self.block_tokens, self.has_hashes)

    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Read the file; which arrivals each seed will spread is counted."""
        trace = super().requests(seed, ledger, read)
        if self._spreads(trace):
            ledger.add_all(CHANGED + "arrival spread inside its time bucket", trace.request_id)
        return trace

    def jittered(self, trace: RequestTrace, seed: int) -> RequestTrace:
        """Spread the time buckets, if that is asked for."""
        return spread_buckets(trace, seed) if self._spreads(trace) else trace

    def _spreads(self, trace: RequestTrace) -> bool:
        distinct = np.unique(trace.arrival_s).size
        is_coarse = distinct < BUCKETED_RATIO * trace.request_count
        return distinct > 1 and (is_coarse if self.spread_time_buckets == "auto" else self.spread_time_buckets)


class _Lines(LineParser):
    """Remembers, by session, when its last request came."""

    def __init__(self, block_tokens: int, has_hashes: bool) -> None:
        self._block_tokens, self._has_hashes = block_tokens, has_hashes
        self._came_ns: dict[str, int] = {}

    @override
    def line(self, text: str, number: int) -> Iterable[Row]:
        """The request of a line."""
        record = json_object(text)
        session = record.get("session_id")
        if session is not None and not isinstance(session, (str, int)):
            raise RowError("session_id", f"given {shown(session)}, expected a text or a whole number")
        arrival_ns, think_s = self._times(record, session)
        inputs = tokens(member(record, "input_length"), "input_length", 1)
        outputs = tokens(member(record, "output_length"), "output_length", 0)
        group: Hashable = None if session is None else str(session)
        if not self._has_hashes:
            return (Row(arrival_ns, inputs, outputs, group, think_s=think_s),)
        if record.get("hash_ids") is None:
            raise RowError("hash_ids", "missing (trace.has_hashes=false reads the trace without prefixes)")
        ids = block_ids(record["hash_ids"], "hash_ids")
        full = full_blocks(ids, "hash_ids", inputs, self._block_tokens)
        if group is None:
            group = tuple(ids[:GROUP_BLOCKS]) or None
        return (Row(arrival_ns, inputs, outputs, group, block_ids=full, think_s=think_s),)

    def _times(self, record: dict[str, Any], session: str | int | None) -> tuple[int, float]:
        """Arrival in ns, nominal where only the delay is known, and think time in s."""
        before_ns = None if session is None else self._came_ns.get(str(session))
        delay_ns, think_s = 0, math.nan
        if session is not None and record.get("delay") is not None:
            delay_ns = time_ns(record["delay"], "delay", MILLISECOND_S)
            think_s = math.nan if before_ns is None else delay_ns / 1e9
        if record.get("timestamp") is None and before_ns is not None and not math.isnan(think_s):
            arrival_ns = min(before_ns + delay_ns, MOST_NS)
        else:
            arrival_ns = time_ns(member(record, "timestamp"), "timestamp", MILLISECOND_S)
        if session is not None:
            self._came_ns[str(session)] = arrival_ns
        return arrival_ns, think_s


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
