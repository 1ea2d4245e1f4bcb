"""The reader of coding agents' sessions: times of sub-agents, think times, ids of a session."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from trace_sources import PLENTY, SAMPLES, chains, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace.azure import AzureLlmTrace
from pipeline.trace.base import LoadedTrace
from pipeline.trace.claude_code import ClaudeCodeTrace
from pipeline.trace.mooncake import MooncakeTrace

SAMPLE = SAMPLES / "claude_code_small.jsonl"


def _request(t: float, **changes: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "model": "m", "in": 8, "out": 2, "hash_ids": [1, 2]} | changes


def _session(*requests: Any, **changes: Any) -> bytes:
    record = {"id": "x", "block_size": 4, "hash_id_scope": "local", "requests": list(requests)} | changes
    return json.dumps(record).encode() + b"\n"


def _load(*lines: bytes, **changes: Any) -> LoadedTrace:
    loaded = load_lines("claude_code", list(lines), block_tokens=4, **changes)
    check_trace(loaded)
    return loaded


def test_sample() -> None:
    loaded = source("claude_code", path=str(SAMPLE), block_tokens=4).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    # The second session starts 1 / 0.1 s after the first. The sub-agent's result came at 40, after 15 s.
    assert trace.arrival_s.tolist() == [0, 6, 10, 15, 20, 25, 31, 41, 3644]  # a pause of 7956 s cut to 3600
    assert trace.session_id.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert trace.input_tokens.tolist() == [10, 13, 8, 9, 18, 9, 13, 22, 8]
    assert trace.output_tokens.tolist() == [3, 2, 2, 1, 4, 1, 2, 5, 2]
    assert trace.classes == ("opus-x", "haiku-x", "claude_code")
    assert trace.class_id.tolist() == [0, 0, 2, 2, 0, 1, 1, 0, 0]
    # As given; unknown end: time between arrivals; after a failed one: as given; sub-agent: 20 + 4 to 25; as given;
    # parent after it: 31 + 3 to 41, for its own 17 count from 24; an hour of 7,956 s, whose request before ended at 44.
    expected = [np.nan, 3.5, np.nan, 5, 10, 1, 4, 7, 3600]
    np.testing.assert_array_equal(trace.think_s, expected)
    # 18 tokens fill 4 of 5 listed blocks; the second session's 1, 2 are not the first one's.
    assert chains(loaded) == [
        [0, 1], [0, 1, 2], [3, 4], [3, 4], [0, 1, 2, 5], [6, 7], [6, 7, 8], [0, 1, 2, 5, 9], [10, 11],
    ]  # fmt: skip
    assert quality(loaded.quality) == {
        "read": (10, "[1, 2]"),
        "kept": (9, "[1, 2]"),
        "changed: think time cut (max_think_s)": (1, "[1]"),
        "dropped: no output (failed request)": (1, "[1]"),
        "ignored: blank line": (1, "[3]"),
        "ignored: session without requests": (1, "[4]"),
        "noted: one output token, so no time per output token": (2, "[1, 2]"),
    }


def test_open_loop_keeps_recorded_times() -> None:
    loaded = source("claude_code", path=str(SAMPLE), block_tokens=4, loop="open", max_think_s=None).load(0, PLENTY)
    assert loaded.trace.arrival_s.tolist() == [0, 6, 10, 15, 20, 25, 31, 41, 8000]
    assert np.isnan(loaded.trace.think_s).all()


def test_ids_are_local_to_a_session_or_global() -> None:
    lines = [_session(_request(0), hash_id_scope=scope) for scope in ("local", "local")]
    assert chains(_load(*lines)) == [[0, 1], [2, 3]]
    ids = [2**40, 2**63]
    assert chains(_load(*[_session(_request(0, hash_ids=ids), hash_id_scope="global")] * 2)) == [[0, 1], [0, 1]]
    lines[1] = _session(_request(0), hash_id_scope="global")
    with pytest.raises(InputError, match="row 2: hash_id_scope: given 'global', expected local as in the lines before"):
        _load(*lines)
    # No id of one session, added to what stands above it, is one of the next session.
    first = _session(*(_request(k, **{"in": 4, "hash_ids": [2**k]}) for k in range(40)))
    second = _session(_request(0, **{"in": 4, "hash_ids": [0]}))
    assert len({block for (block,) in chains(_load(first, second))}) == 41


def _subagent(t: float, *requests: Any, **changes: Any) -> dict[str, Any]:
    return {"t": t, "type": "subagent", "duration_ms": 30_000, "requests": list(requests)} | changes


def _inner(*times: float) -> list[dict[str, Any]]:
    return [_request(t, model="inner", api_time=1.0) for t in times]


@pytest.mark.parametrize(
    ("agent", "starts"),
    [
        (_subagent(50, *_inner(0, 5)), [20, 25]),
        (_subagent(50, *_inner(0, 5), duration_ms=40_000), [10, 15]),
        (_subagent(50, *_inner(0, 5), duration_ms=None), [50, 55]),
        (_subagent(50, *_inner(0, 5), duration_ms=41_000), [50, 55]),  # would have begun before its parent asked
        (_subagent(50, *_inner(51, 55)), [51, 55]),  # on the session's clock
        (_subagent(50, *_inner(0, 5), _subagent(12, *_inner(1), duration_ms=6_000)), [20, 25, 27]),
    ],
)
def test_when_a_sub_agent_works(agent: dict[str, Any], starts: list[float]) -> None:
    trace = _load(_session(_request(0, api_time=1.0), _request(10, api_time=4.0), agent)).trace
    assert trace.arrival_s.tolist() == [0, 10, *starts]
    assert [trace.classes[i] for i in trace.class_id] == ["m", "m", *["inner"] * len(starts)]
    assert trace.session_id.tolist() == [0] * len(starts) + [0, 0]


def test_sub_agents_at_once_take_turns() -> None:
    agents = [_subagent(40, *_inner(0, 8)), _subagent(41, *_inner(0, 6), duration_ms=29_000)]
    loaded = _load(_session(_request(0, api_time=9.0), *agents, _request(42, think_time=33.0)))
    assert loaded.trace.arrival_s.tolist() == [0, 10, 12, 18, 18, 42]
    # 9 to 10; 11 to 12; 13 to 18; both at 18: at once; 19 to 42
    np.testing.assert_array_equal(loaded.trace.think_s, [np.nan, 1, 1, 5, 0, 23])
    assert quality(loaded.quality)["changed: earlier than a row before it in its session, sorted by time"][0] == 1


@pytest.mark.parametrize(
    ("before", "after", "think_s"),
    [
        ({"api_time": 2.0}, {"think_time": 7.5}, 7.5),
        ({"api_time": 2.0}, {}, 8.0),
        ({"api_time": 2.0}, {"think_time": None}, 8.0),
        ({"api_time": 12.0}, {}, 0.0),
        ({}, {"think_time": 70.0}, 10.0),  # it counts from an earlier request
        ({"api_time": None}, {}, 10.0),
    ],
)
def test_think_times(before: dict[str, Any], after: dict[str, Any], think_s: float) -> None:
    trace = _load(_session(_request(0, **before), _request(10, **after))).trace
    assert trace.think_s.tolist()[1] == think_s


def test_requests_out_of_order_are_sorted_and_counted() -> None:
    loaded = _load(_session(_request(0, api_time=1.0), _request(9, think_time=3.0), _request(5, api_time=1.0)))
    assert loaded.trace.arrival_s.tolist() == [0, 5, 9]
    np.testing.assert_array_equal(loaded.trace.think_s, [np.nan, 4, 3])
    assert quality(loaded.quality)["changed: earlier than a row before it in its session, sorted by time"][0] == 1


GOOD = _session(_request(0))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (_session(_request(0), block_size=16), "block_size: given 16, expected 4 (trace.block_tokens says how many"),
        (_session(_request(0), block_size=None), "block_size: missing; found 'id', 'hash_id_scope', 'requests'"),
        (_session(_request(0), hash_id_scope="chat"), "hash_id_scope: given 'chat', expected local"),
        (_session(_request(0), hash_id_scope=3), "hash_id_scope: given 3, expected a text"),
        (_session(_request(0), requests=None), "requests: missing"),
        (_session(_request(0), requests={"a": 1}), "requests: given {'a': 1}, expected a list of requests"),
        (_session(_request(0), 7), "requests[1]: given 7, expected an object"),
        (_session(_request(0), _request(1, hash_ids=[1])), "requests[1].hash_ids: given 1 ids for 8 tokens, exp"),
        (_session(_request(0, hash_ids=[2**40, 1])), "requests[0].hash_ids: given 1099511627776, expected ids"),
        (_session(_request(0, hash_ids=[1, 2**64])), "requests[0].hash_ids: given [1, 18446744073709551616], expected"),
        (_session(_request(0), _request(None)), "requests[1].t: missing"),
        (_session(_request(-1)), "requests[0].t: given -1, expected a time from 0"),
        (_session({"t": 0, "in": 8, "hash_ids": [1, 2]}), "requests[0].out: missing"),
        (_session(_request(0, **{"in": 0})), "requests[0].in: given 0, expected 1 to"),
        (_session(_request(0, think_time=-2)), "requests[0].think_time: given -2, expected a time from 0"),
        (_session(_request(0, api_time="1")), "requests[0].api_time: given '1', expected a number"),
        (_session(_request(0, model=[1])), "requests[0].model: given [1], expected a text"),
        (_session(_request(0, model="\ud800")), "requests[0].model: given "),
        (_session(_request(0), _subagent(5, _request("x"))), "requests[1].requests[0].t: given "),
        (_session(_subagent(5, requests=None)), "requests[0].requests: missing"),
        (_session(_subagent(9e9, *_inner(9e8))), "requests[0].requests[0].t: given 900000000.0, expected a time th"),
    ],
)  # fmt: skip
def test_a_bad_request_refuses_its_session(line: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        _load(GOOD, line, GOOD)
    assert str(refused.value).startswith("memory, row 2: ")
    assert message in str(refused.value)
    loaded = _load(GOOD, line, GOOD, bad_rows="drop")
    assert loaded.trace.request_count == 2, "a session of which one request cannot be read is left out as a whole"
    (dropped,) = ((k, v) for k, v in quality(loaded.quality).items() if k.startswith("dropped: "))
    # Its requests are counted, where it has a list of them.
    lost = max(1, len(found)) if isinstance(found := json.loads(line).get("requests"), list) else 1
    lost = lost if message.startswith("requests[") else 1
    assert dropped == (f"dropped: unreadable {message.split(':')[0].split('[')[0]}", (lost, "[2]"))


def test_sub_agents_too_deep_are_refused() -> None:
    agent = _subagent(1, *_inner(0))
    for _ in range(20):
        agent = _subagent(1, agent)
    with pytest.raises(InputError, match=r"expected a list of requests, sub-agents at most 8 deep"):
        _load(_session(agent))


def test_a_failed_request_may_have_no_prompt() -> None:
    loaded = _load(_session(_request(0), _request(1, **{"in": 0, "out": 0, "hash_ids": []})))
    assert quality(loaded.quality)["dropped: no output (failed request)"] == (1, "[1]")


def test_it_is_told_from_other_formats() -> None:
    lines = SAMPLE.read_text().splitlines()
    assert ClaudeCodeTrace.looks_like(lines)
    assert not MooncakeTrace.looks_like(lines)
    assert not AzureLlmTrace.looks_like(lines)
    for other in ("mooncake_small.jsonl", "azure_small.csv", "requests_small.csv"):
        assert not ClaudeCodeTrace.looks_like((SAMPLES / other).read_text().splitlines())
    assert not ClaudeCodeTrace.looks_like(["{"])
    assert not ClaudeCodeTrace.looks_like([])
