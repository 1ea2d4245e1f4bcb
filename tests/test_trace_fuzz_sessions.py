"""Whatever a file of sessions holds, its reader reads it or refuses it in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from trace_sources import SAMPLES, check_trace, load_lines, source

from pipeline.spec import InputError
from pipeline.trace.base import LoadedTrace

FUZZ = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CONTEXT = 2000
BLOCK_TOKENS = 4
OPTIONS = ("claude_code", "bailian", "lmcache_agent")

number = st.one_of(
    st.integers(0, 5000),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, 1, -1, 2**31, 2**40, 2**63 - 1, 2**64 - 1, 2**64, 9.2e9, 1e300, 0.5]),
)
text = st.text(st.characters(), max_size=40) | st.sampled_from(["\ud800", "\udfff" * 9])
anything = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
seconds = st.integers(0, 50) | st.floats(0, 1e5) | st.sampled_from([0, 5e9])


def _changed(draw: st.DrawFn, row: dict[str, Any], most: int = 1) -> dict[str, Any]:
    """The row with up to so many fields replaced by anything, or taken out."""
    for field in draw(st.lists(st.sampled_from(sorted(row)), max_size=most)):
        if draw(st.booleans()):
            row[field] = draw(anything)
        else:
            row.pop(field, None)
    return row


def _ids(draw: st.DrawFn, inputs: int) -> list[int]:
    blocks = inputs // BLOCK_TOKENS + draw(st.booleans())
    return draw(st.lists(st.integers(0, 3), min_size=blocks, max_size=blocks))


@st.composite
def requests(draw: st.DrawFn, depth: int = 0) -> Any:
    """A request, or a sub-agent with some."""
    if depth < 3 and draw(st.integers(0, 4)) == 0:
        inner = draw(st.lists(requests(depth + 1), max_size=3) | anything)
        agent = {"t": draw(seconds), "type": "subagent", "duration_ms": draw(st.integers(0, 90_000)), "requests": inner}
        return _changed(draw, agent) if draw(st.integers(0, 5)) == 0 else agent
    inputs = draw(st.integers(1, 40))
    row = {"t": draw(seconds), "type": "n", "model": draw(st.sampled_from(["a", "b", "\ud800"])), "in": inputs}
    row |= {"out": draw(st.integers(0, 9)), "hash_ids": _ids(draw, inputs)}
    row |= {"think_time": draw(st.none() | seconds), "api_time": draw(st.none() | seconds)}
    return _changed(draw, row) if draw(st.integers(0, 9)) == 0 else row


@st.composite
def claude_code(draw: st.DrawFn) -> dict[str, Any]:
    scope = draw(st.sampled_from(["local", "local", "local", "global"]))
    row = {"block_size": BLOCK_TOKENS, "hash_id_scope": scope, "requests": draw(st.lists(requests(), max_size=5))}
    row["requests"] += draw(st.sampled_from([[], [], [], [None], ["t"], [7]]))
    return _changed(draw, row) if draw(st.integers(0, 3)) == 0 else row


@st.composite
def bailian(draw: st.DrawFn) -> dict[str, Any]:
    inputs = draw(st.integers(1, 40))
    row: dict[str, Any] = {"chat_id": draw(st.integers(0, 9)), "parent_chat_id": draw(st.integers(-1, 9))}
    row |= {"timestamp": draw(seconds), "input_length": inputs, "output_length": draw(st.integers(0, 9))}
    row |= {"type": draw(st.sampled_from(["text", "file"])), "hash_ids": _ids(draw, inputs)}
    return _changed(draw, row, 2) if draw(st.integers(0, 3)) == 0 else row


part = text | st.dictionaries(st.just("text"), anything)
content = st.none() | text | text | st.lists(part | anything, max_size=3) | anything


@st.composite
def messages(draw: st.DrawFn) -> Any:
    row = {"role": draw(st.sampled_from(["user", "tool"])), "content": draw(content), "tool_calls": draw(anything)}
    return _changed(draw, row) if draw(st.integers(0, 9)) == 0 else row


@st.composite
def lmcache_agent(draw: st.DrawFn) -> dict[str, Any]:
    row: dict[str, Any] = {"session_id": draw(st.sampled_from(["a", "b", 1])), "model": "m"}
    row |= {"input": draw(st.lists(messages(), max_size=4)), "output_length": draw(st.none() | st.integers(0, 9))}
    row |= {"pre_gap": draw(st.none() | seconds), "timestamp": draw(st.none() | seconds), "output": draw(text)}
    return _changed(draw, row, 2) if draw(st.integers(0, 3)) == 0 else row


ROWS = {"claude_code": claude_code(), "bailian": bailian(), "lmcache_agent": lmcache_agent()}


def _load(option: str, data: bytes | list[bytes], **changes: Any) -> LoadedTrace:
    loaded = load_lines(option, data, context=CONTEXT, **{"block_tokens": BLOCK_TOKENS} | changes)
    check_trace(loaded)
    drawn = source(option, **{"block_tokens": BLOCK_TOKENS} | changes).jittered(loaded.trace, 1)
    check_trace(replace(loaded, trace=drawn))
    "".join(loaded.trace.classes).encode()
    return loaded


def _read_or_refuse(option: str, data: bytes | list[bytes], **changes: Any) -> None:
    for bad_rows in ("refuse", "drop"):
        try:
            _load(option, data, bad_rows=bad_rows, **changes)
        except InputError as exc:
            assert str(exc).startswith("memory")
            assert "\n" not in str(exc)
            assert len(str(exc)) < 700


def _lines(rows: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


@pytest.mark.parametrize("option", OPTIONS)
@FUZZ
@given(data=st.data())
def test_records(option: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(ROWS[option], min_size=1, max_size=4))
    changes: dict[str, Any] = {"too_long": data.draw(st.sampled_from(["drop", "clip", "refuse"]))}
    if option != "bailian" and data.draw(st.booleans()):
        changes |= {"loop": "open", "max_think_s": None}
    _read_or_refuse(option, _lines(rows), **changes)


@pytest.mark.parametrize("option", OPTIONS)
@FUZZ
@given(data=st.data())
def test_mutated_files(option: str, data: st.DataObject) -> None:
    text = bytearray((SAMPLES / f"{option}_small.jsonl").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(len(text) - 1, 0)))
        cut = data.draw(st.integers(0, 12))
        text[at : at + cut] = data.draw(st.binary(max_size=6) | st.sampled_from([b"\n", b"\r", b'"', b"-", b"9" * 20]))
    _read_or_refuse(option, bytes(text))


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for option in OPTIONS:
        _read_or_refuse(option, data)


def _is_read(option: str, row: dict[str, Any]) -> bool:
    try:
        return _load(option, _lines([row])).trace.block_ids.size > 1
    except InputError:
        return False


@pytest.mark.parametrize("option", OPTIONS)
def test_the_strategies_reach_rows_that_are_read_and_rows_that_are_not(option: str) -> None:
    """A fuzz in which nothing is ever read, or nothing ever refused, would prove nothing."""
    either = settings(max_examples=200, derandomize=True, deadline=None, phases=[Phase.generate])
    find(ROWS[option], lambda row: _is_read(option, row), settings=either)
    find(ROWS[option], lambda row: not _is_read(option, row), settings=either)
