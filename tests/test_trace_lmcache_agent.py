"""The reader of agents' messages: estimated tokens, prefixes by hashes, times of a session."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from trace_sources import PLENTY, SAMPLES, chains, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace.azure import AzureLlmTrace
from pipeline.trace.bailian import BailianTrace
from pipeline.trace.base import LoadedTrace
from pipeline.trace.claude_code import ClaudeCodeTrace
from pipeline.trace.lmcache_agent import LmcacheAgentTrace
from pipeline.trace.mooncake import MooncakeTrace

SAMPLE = SAMPLES / "lmcache_agent_small.jsonl"
LINE_ENDS = 6
"""Characters of "user" and two line ends."""


def _line(content: Any = "hi", session: Any = "s", **changes: Any) -> bytes:
    record = {"session_id": session, "model": "m", "input": [{"role": "user", "content": content}]}
    record |= {"pre_gap": 1.0, "output_length": 3} | changes
    return json.dumps(record).encode() + b"\n"


def _load(*lines: bytes, **changes: Any) -> LoadedTrace:
    loaded = load_lines("lmcache_agent", list(lines), **{"block_tokens": 4} | changes)
    check_trace(loaded)
    return loaded


def test_sample() -> None:
    loaded = source("lmcache_agent", path=str(SAMPLE), block_tokens=4).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    # A session starts every 10 s. The first: gaps of 1.25 and 2.5, between them a failed request.
    assert trace.arrival_s.tolist() == [0, 3.75, 10, 17.5, 20]
    np.testing.assert_array_equal(trace.think_s, [np.nan, 2.5, np.nan, 7.5, np.nan])
    assert trace.session_id.tolist() == [0, 0, 1, 1, 2]
    assert trace.classes == ("claude", "minimax", "lmcache_agent")
    assert trace.class_id.tolist() == [0, 0, 1, 1, 2]
    # "system\nYou are a careful agent.\n" has 32 characters, "user\nfix bug 12\n" 16, "assistant\nLet me look.\n" 23,
    # "user\ngo on\n" 11; "assistant\n\n" 11 and its tool call 43, "tool\na.py\n" 10 and a part that is no text 26;
    # the last prompt 13, of which two are not ASCII.
    assert trace.input_tokens.tolist() == [48 // 4, 149 // 4, 48 // 4, 82 // 4, 13 // 4]
    assert trace.output_tokens.tolist() == [5, 1, 7, 3, 3]
    # 16 characters a block: the system prompt is two, shared by both sessions.
    assert chains(loaded) == [[0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 9], [0, 1, 9, 10, 11], []]
    assert quality(loaded.quality) == {
        "read": (7, "[1, 2, 3, 4, 5]"),
        "kept": (5, "[1, 2, 4, 5, 7]"),
        "changed: earlier than a row before it in its session, sorted by time": (1, "[4]"),
        "dropped: no output (failed request)": (2, "[3, 6]"),
        "noted: one output token, so no time per output token": (1, "[5]"),
    }


@pytest.mark.parametrize(
    ("chars_per_token", "characters", "expected_tokens"),
    [(4.0, 15, 3), (4.0, 16, 4), (4.0, 31, 7), (1.0, 15, 15), (2.5, 24, 9), (2.5, 25, 10), (64.0, 7, 1)],
)
def test_tokens_are_estimated_from_characters(chars_per_token: float, characters: int, expected_tokens: int) -> None:
    loaded = _load(_line("x" * (characters - LINE_ENDS)), chars_per_token=chars_per_token)
    assert loaded.trace.input_tokens.tolist() == [expected_tokens]
    assert [len(chain) for chain in chains(loaded)] == [expected_tokens // 4]


def test_equal_prefixes_share_blocks_up_to_the_one_that_differs() -> None:
    text = "0123456789" * 10  # with its role 106 characters: 26 tokens, 6 blocks of 16
    lines = [
        _line(text),
        _line(text + "more and more"),
        _line("x" + text[1:], session="other"),
        _line(text[:30] + "x" + text[31:], session="other"),  # character 35 of the prompt: the third block
        _line(text[:26] + "x" + text[27:], session="other"),  # character 31: the second block
    ]
    loaded = _load(*lines)
    assert chains(loaded) == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 4, 5, 6],
        [7, 8, 9, 10, 11, 12],
        [0, 1, 13, 14, 15, 16],
        [0, 17, 18, 19, 20, 21],
    ]
    assert "changed: block id met under another prefix, numbered as another block" not in quality(loaded.quality)


def test_blocks_end_at_the_same_characters_where_a_token_has_no_whole_number_of_them() -> None:
    text = "abcdefghij" * 10
    loaded = _load(_line(text), _line(text[:60]), chars_per_token=3.3)
    first, second = chains(loaded)
    assert (len(first), len(second)) == (8, 5)  # 106 / 3.3 = 32.1 and 66 / 3.3 = 20
    assert first[:4] == second[:4]


def test_what_belongs_to_a_prompt() -> None:
    call = [{"id": "c", "function": {"name": "\u00e9"}}]

    def prompt(**message: Any) -> list[int]:
        return _load(_line(input=[{"role": "user"} | message]), chars_per_token=1.0).trace.input_tokens.tolist()

    assert prompt(content="abc") == [9]
    assert prompt(content=None) == [6]
    assert prompt() == [6]
    assert prompt(content=["abc", {"type": "text", "text": "de"}, {"n": 1}]) == [6 + 3 + 1 + 2 + 1 + 8]
    assert prompt(content="abc", tool_calls=call) == [9 + len('[{"id": "c", "function": {"name": "e"}}]') + 1]
    assert prompt(content="abc", tool_calls=None, name="ignored", tool_call_id="ignored") == [9]
    assert prompt(content="\ud800" * 4) == [10]


def test_times_by_clock_and_by_gap() -> None:
    lines = [
        _line(session="clock", timestamp=1_700_000_005.5, pre_gap=2.0),
        _line(session="clock", timestamp=1_700_000_000, pre_gap=None),
        _line(session="gaps", pre_gap=0.0),
        _line(session="clock", session_timestamp=1_700_000_007, timestamp=9, pre_gap=None),
        _line(session="gaps", pre_gap=4.0),
        _line(session="gaps", pre_gap=0.5),
    ]
    trace = _load(*lines).trace
    assert trace.session_id.tolist() == [0, 0, 0, 1, 1, 1]
    assert trace.arrival_s.tolist() == [0, 5.5, 7, 10, 14, 14.5]
    np.testing.assert_array_equal(trace.think_s, [np.nan, 2, 1.5, np.nan, 4, 0.5])


def test_output_text_is_measured_where_no_length_is_given() -> None:
    lines = [_line(output_length=None, output=text) for text in ("", "a", "abcd", "abcde")]
    loaded = _load(*lines, _line(output="abcde"))
    assert loaded.trace.output_tokens.tolist() == [1, 1, 2, 3]
    assert quality(loaded.quality)["dropped: no output (failed request)"] == (1, "[1]")


def test_session_names_are_not_mixed_up() -> None:
    assert _load(_line(session=1), _line(session="1"), _line(session=1)).trace.session_id.tolist() == [0, 0, 1]


GOOD = _line()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (_line(session=None), "session_id: missing; found 'model', 'input'"),
        (_line(session=[1]), "session_id: given [1], expected a text or a number"),
        (_line(session=True), "session_id: given True, expected a text or a number"),
        (_line(input=None), "input: missing"),
        (_line(input=[]), "input: given [], expected a list of messages"),
        (_line(input="hi"), "input: given 'hi', expected a list of messages"),
        (_line(input=[{"role": "user"}, 5]), "input[1]: given 5, expected a message with a role"),
        (_line(input=[{"content": "a"}]), "input[0]: given {'content': 'a'}, expected a message with a role"),
        (_line(input=[{"role": "user", "content": 5}]), "input[0].content: given 5, expected a text or a list"),
        (_line(output_length=None), "output_length: missing"),
        (_line(output_length=None, output=5), "output_length: missing"),
        (_line(output_length=-1), "output_length: given -1, expected 0 to"),
        (_line(pre_gap=None), "time: missing, expected one of session_timestamp, timestamp, pre_gap"),
        (_line(pre_gap=-1), "pre_gap: given -1, expected a time from 0"),
        (_line(timestamp="x"), "timestamp: given 'x', expected a number"),
        (_line(pre_gap=9.2e9), "pre_gap: given 9200000000.0, expected under 292 years in a session"),
        (_line(model={}), "model: given {}, expected a text"),
    ],
)
def test_a_bad_row_is_refused_or_dropped(line: bytes, message: str) -> None:
    first = _line(pre_gap=9e8)
    with pytest.raises(InputError) as refused:
        _load(first, line, GOOD)
    assert str(refused.value).startswith(f"memory, row 2: {message}")
    loaded = _load(first, line, GOOD, bad_rows="drop")
    assert loaded.trace.arrival_s.tolist() == [0, 1], "a row that was dropped takes no time"
    assert quality(loaded.quality)[f"dropped: unreadable {message.split(':')[0].split('[')[0]}"] == (1, "[2]")


@pytest.mark.parametrize("chars_per_token", [0.0, 0.2, 65.0, float("nan")])
def test_characters_per_token_are_bounded(chars_per_token: float) -> None:
    with pytest.raises(InputError, match=r"trace\.chars_per_token: given "):
        source("lmcache_agent", chars_per_token=chars_per_token)


def test_it_is_told_from_other_formats() -> None:
    lines = SAMPLE.read_text().splitlines()
    assert LmcacheAgentTrace.looks_like(lines)
    for reader in (MooncakeTrace, AzureLlmTrace, ClaudeCodeTrace, BailianTrace):
        assert not reader.looks_like(lines)
    for other in [*SAMPLES.glob("*.jsonl"), *SAMPLES.glob("*.csv")]:
        assert LmcacheAgentTrace.looks_like(other.read_text().splitlines()) is (other == SAMPLE)
    assert not LmcacheAgentTrace.looks_like([])
