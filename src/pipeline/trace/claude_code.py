"""Reader of sessions of coding agents (callanjfox/kv-cache-tester)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from pipeline.trace.json_rows import json_object, keys_of, label, member
from pipeline.trace.rows import (
    MOST_NS,
    Left,
    LineParser,
    Row,
    RowError,
    block_ids,
    full_blocks,
    nested,
    shown,
    time_ns,
    tokens,
)
from pipeline.trace.session_file import SessionFile

SESSION_BITS = 40
"""Ids of scope `local` lie below 2^40; the line number of their session stands above."""
MOST_NESTED = 8
MILLISECOND_S = 1e-3


class ClaudeCodeTrace(SessionFile):
    """One session a line: block_size (tokens, must be block_tokens), hash_id_scope, requests; one object, not a list.

    A request has t (s since the session began), in, out (tokens), hash_ids (full blocks, or all), and where known
    model, think_time and api_time (s). Its class is its model, so that small helper models are told apart; all models
    are served alike. Contexts may shrink (compaction). Without output it failed: dropped, with the time it took.
    Ids: with hash_id_scope `local` (or none) an id means something within its session only; with `global` in all.
    Think times: think_time counts from the end of the last request before whose end is known. It is taken where that
    is the request before, else the time between that one's end (t + api_time) and t, at least 0; where its end is not
    known, the recorded time between the two arrivals stands in (see SessionFile), as it does without think_time.
    In 120 published sessions t = t + api_time of the request before + think_time to within the second they are
    rounded to, but for one that came before that answer.
    Sub-agents: an entry of type `subagent` holds requests of its own, here requests of the same session, with its ids.
    They are timed from when it began: its own t less duration_ms, for t is when its result came (within 0.3 s of that
    the request that launched it ended), or t itself where that would be before the request before it. Requests whose
    times are no less than the entry's own t are on the session's clock, as in later captures. A closed loop does one
    thing at a time: sub-agents at work at once, or behind their parent's back, take turns in order of their times.
    """

    def lists_blocks(self) -> bool:
        """Whether the file carries prefix hashes: yes."""
        return True

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the first line is a session with its blocks' size."""
        return {"block_size", "requests"} <= keys_of(lines)

    @override
    def parser(self) -> LineParser:
        """Return a parser that watches over the scope of ids."""
        return _Sessions(self.block_tokens)


class _Call(NamedTuple):
    """One request: its list in the line, its place among the requests of that; served_ns: how long it took."""

    stream: str
    place: int
    start_ns: int
    served_ns: int | None
    think_s: float
    input_tokens: int
    output_tokens: int
    model: str
    block_ids: array[int]


class _Sessions(LineParser):
    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._scope: str | None = None

    @override
    def line(self, text: str, number: int) -> Iterable[Row | Left]:
        """The requests of a session; if one of them cannot be read, none is."""
        record = json_object(text)
        size = tokens(member(record, "block_size"), "block_size", 1)
        if size != self._block_tokens:
            expected = f"{self._block_tokens} (trace.block_tokens says how many tokens an id stands for)"
            raise RowError("block_size", f"given {size}, expected {expected}")
        space = self._space(label(record, "hash_id_scope") or "local", number)
        listed = member(record, "requests")
        try:
            calls = list(self._calls(listed, "requests", 0, space))
        except RowError as exc:
            exc.requests = max(1, len(listed)) if isinstance(listed, list) else 1
            raise
        if not calls:
            return (Left("session without requests", is_request=False),)
        think_s = _think_s(calls)
        return [
            Row(c.start_ns, c.input_tokens, c.output_tokens, number, c.model, c.block_ids, think_s[i])
            for i, c in enumerate(calls)
        ]

    def _space(self, scope: str, number: int) -> int | None:
        """What is put above the ids of a session; None where they stand as they are."""
        if scope not in ("local", "global") or number >= 2 ** (64 - SESSION_BITS):
            raise RowError("hash_id_scope", f"given {shown(scope)}, expected local (in the first 2^24 lines) or global")
        if scope != (self._scope or scope):
            raise RowError("hash_id_scope", f"given {shown(scope)}, expected {self._scope} as in the lines before")
        self._scope = scope
        return number << SESSION_BITS if scope == "local" else None

    def _calls(self, entries: Any, stream: str, origin_ns: int, space: int | None) -> Iterator[_Call]:
        """Yield the requests of a list and of its sub-agents; origin_ns: time of its t = 0."""
        if not isinstance(entries, list) or stream.count("[") > MOST_NESTED:
            expected = f"a list of requests, sub-agents at most {MOST_NESTED} deep"
            raise nested(stream, f"given {shown(entries)}, expected {expected}")
        place, before_ns = 0, origin_ns
        for index, entry in enumerate(entries):
            name = f"{stream}[{index}]"
            if not isinstance(entry, dict):
                raise nested(name, f"given {shown(entry)}, expected an object")
            try:
                start_ns = _later(origin_ns, entry, "t", 1.0)
                if entry.get("type") == "subagent":
                    inner, inner_ns = member(entry, "requests"), _origin_ns(entry, origin_ns, start_ns, before_ns)
                else:
                    call = self._call(entry, stream, place, start_ns, space)
            except RowError as exc:
                raise nested(f"{name}.{exc.field}", exc.problem) from None
            if entry.get("type") == "subagent":
                yield from self._calls(inner, f"{name}.requests", inner_ns, space)
            else:
                yield call
                place, before_ns = place + 1, start_ns

    def _call(self, entry: dict[str, Any], stream: str, place: int, start_ns: int, space: int | None) -> _Call:
        outputs = tokens(member(entry, "out"), "out", 0)
        inputs = tokens(member(entry, "in"), "in", 1 if outputs else 0)
        served_ns, think_ns = (_optional_ns(entry, field, 1.0) for field in ("api_time", "think_time"))
        listed = full_blocks(block_ids(member(entry, "hash_ids"), "hash_ids"), "hash_ids", inputs, self._block_tokens)
        return _Call(
            stream,
            place,
            start_ns,
            served_ns,
            math.nan if think_ns is None else think_ns / 1e9,
            inputs,
            outputs,
            label(entry, "model"),
            listed if space is None else _placed(listed, space),
        )


def _later(origin_ns: int, entry: dict[str, Any], field: str, unit_s: float) -> int:
    at_ns = origin_ns + time_ns(member(entry, field), field, unit_s)
    if at_ns > MOST_NS:
        raise RowError(field, f"given {shown(entry[field])}, expected a time that is under 292 years with its parent's")
    return at_ns


def _optional_ns(entry: dict[str, Any], field: str, unit_s: float) -> int | None:
    return None if entry.get(field) is None else time_ns(entry[field], field, unit_s)


def _origin_ns(entry: dict[str, Any], origin_ns: int, at_ns: int, before_ns: int) -> int:
    """Time of t = 0 of a sub-agent's requests; at_ns: when its entry is, before_ns: the request before it."""
    requests = entry["requests"] if isinstance(entry["requests"], list) else []
    times = [request.get("t") for request in requests if isinstance(request, dict)]
    if times and all(isinstance(time, (int, float)) and time >= entry["t"] for time in times):
        return origin_ns
    began_ns = at_ns - (_optional_ns(entry, "duration_ms", MILLISECOND_S) or 0)
    return began_ns if began_ns >= before_ns else at_ns


def _placed(ids: array[int], space: int) -> array[int]:
    """Put the session above its ids."""
    if not ids:
        return ids
    numbers = np.frombuffer(ids, np.uint64)
    if numbers.max() >= 2**SESSION_BITS:
        raise RowError("hash_ids", f"given {numbers.max()}, expected ids below 2^{SESSION_BITS} of hash_id_scope local")
    return array("Q", (numbers + np.uint64(space)).tobytes())


def _think_s(calls: Sequence[_Call]) -> list[float]:
    """Return the think time before each request, NaN where it is not known; before: the one before it in time."""
    think_s = [math.nan] * len(calls)
    order = sorted(range(len(calls)), key=lambda i: calls[i].start_ns)
    for i, j in pairwise(order):
        before, call = calls[i], calls[j]
        if before.served_ns is None:
            continue
        is_counted_from_it = (before.stream, before.place + 1) == (call.stream, call.place)
        gap_s = max(call.start_ns - before.start_ns - before.served_ns, 0) / 1e9
        think_s[j] = call.think_s if is_counted_from_it and not math.isnan(call.think_s) else gap_s
    return think_s
