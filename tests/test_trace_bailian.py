"""The reader of Bailian's chats: sessions by parents, blocks, ids."""

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
from pipeline.trace.mooncake import MooncakeTrace

SAMPLE = SAMPLES / "bailian_small.jsonl"
ORPHAN = "noted: parent_chat_id of no row before, taken as a session"


def _line(chat: Any, parent: Any, **changes: Any) -> bytes:
    record = {"chat_id": chat, "parent_chat_id": parent, "timestamp": 1.5, "input_length": 8, "output_length": 2}
    record |= {"type": "text", "turn": 1, "hash_ids": [1, 2]} | changes
    return json.dumps(record).encode() + b"\n"


def _load(*lines: bytes, **changes: Any) -> LoadedTrace:
    loaded = load_lines("bailian", list(lines), block_tokens=4, **changes)
    check_trace(loaded)
    return loaded


def test_sample() -> None:
    loaded = source("bailian", path=str(SAMPLE), block_tokens=4).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    # 61.114 stands behind 61.25.
    assert trace.arrival_s.tolist() == [0, 0.5, 61.114, 61.25, 91, 120.5, 121, 130]
    assert np.isnan(trace.think_s).all()
    assert trace.input_tokens.tolist() == [10, 8, 12, 13, 3, 20, 8, 16]
    assert trace.output_tokens.tolist() == [5, 1, 3, 4, 2, 6, 2, 2]
    assert trace.classes == ("text", "search", "file", "image")
    assert trace.class_id.tolist() == [0, 1, 2, 0, 2, 0, 3, 2]
    # 102 and (over 104, which failed) 106 belong to 100; 103, 105 and 108 to 55, which is not there.
    assert trace.session_id.tolist() == [0, 1, 2, 0, 2, 0, 3, 2]
    # 10 tokens fill 2 of 3 listed blocks, 13 fill 3 of 3, 3 none of 1; 8 behind 7 + 2^32 is not 8 behind 7.
    assert chains(loaded) == [
        [0, 1], [0, 1], [2, 3, 4], [0, 1, 5], [], [0, 1, 5, 6, 7], [8, 9], [2, 3, 4, 10],
    ]  # fmt: skip
    assert quality(loaded.quality) == {
        "read": (9, "[1, 2, 3, 5, 6]"),
        "kept": (8, "[1, 2, 3, 5, 7]"),
        "changed: block id met under another prefix, numbered as another block": (1, "[9]"),
        "changed: earlier than a row before it, sorted by time": (1, "[5]"),
        "dropped: no output (failed request)": (1, "[6]"),
        "ignored: blank line": (1, "[4]"),
        ORPHAN: (2, "[5, 7]"),
        "noted: one output token, so no time per output token": (1, "[2]"),
    }


def test_sessions_follow_parents() -> None:
    big = 2**32
    lines = [_line(5, -1), _line(5 + big, -1), _line(6, 5), _line(7, 5 + big), _line(8, 6), _line(9, None)]
    loaded = _load(*lines, _line(10, 9))
    assert loaded.trace.session_id.tolist() == [0, 1, 0, 1, 0, 2, 2]
    assert ORPHAN not in quality(loaded.quality)


def test_a_parent_that_comes_later_is_counted_and_joined() -> None:
    loaded = _load(_line(2, 1, timestamp=5), _line(1, -1), _line(3, 3))
    assert loaded.trace.session_id.tolist() == [0, 1, 0]
    assert quality(loaded.quality)[ORPHAN] == (2, "[1, 3]")


def test_ids_that_differ_above_bit_32_stay_apart() -> None:
    ids = [5, 5 + 2**32, 5 + 2**63, 2**64 - 1]
    loaded = _load(*(_line(k, -1, input_length=4, hash_ids=[block]) for k, block in enumerate(ids)))
    assert chains(loaded) == [[0], [1], [2], [3]]


def test_a_chat_that_comes_twice_is_refused_and_changes_nothing() -> None:
    lines = [_line(1, -1), _line(2, -1), _line(2, 1), _line(3, 2)]
    with pytest.raises(InputError, match="row 3: request id: given 2, which a row before it has"):
        _load(*lines)
    loaded = _load(*lines, bad_rows="drop")
    assert loaded.trace.session_id.tolist() == [0, 1, 1]
    assert quality(loaded.quality)["dropped: unreadable request id"] == (1, "[3]")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (_line(None, -1), "chat_id: missing; found 'parent_chat_id', 'timestamp'"),
        (_line(-1, -1), "chat_id: given -1, expected a whole number, at least 0"),
        (_line(True, -1), "chat_id: given True, expected a whole number"),
        (_line("7", -1), "chat_id: given '7', expected a whole number"),
        (_line(1.0, -1), "chat_id: given 1.0, expected a whole number"),
        (_line(7, -2), "parent_chat_id: given -2, expected a whole number, at least -1"),
        (_line(7, [1]), "parent_chat_id: given [1], expected a whole number"),
        (_line(7, 1, hash_ids=[1]), "hash_ids: given 1 ids for 8 tokens, expected 2 (all blocks) or 2 (full blocks)"),
        (_line(7, 1, hash_ids=None), "hash_ids: missing"),
        (_line(7, 1, input_length=0), "input_length: given 0, expected 1 to"),
        (_line(7, 1, output_length=None), "output_length: missing"),
        (_line(7, 1, timestamp=-0.5), "timestamp: given -0.5, expected a time from 0"),
        (_line(7, 1, type=4), "type: given 4, expected a text"),
    ],
)
def test_a_bad_row_is_refused_or_dropped(line: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        _load(_line(1, -1), line, _line(2, -1))
    assert str(refused.value).startswith(f"memory, row 2: {message}")
    loaded = _load(_line(1, -1), line, _line(2, 7), bad_rows="drop")
    assert loaded.trace.request_count == 2
    assert quality(loaded.quality)[f"dropped: unreadable {message.split(':')[0]}"] == (1, "[2]")
    assert quality(loaded.quality)[ORPHAN] == (1, "[3]"), "a row that was dropped is no parent"


def test_it_is_told_from_other_formats() -> None:
    lines = SAMPLE.read_text().splitlines()
    assert BailianTrace.looks_like(lines)
    for reader in (MooncakeTrace, AzureLlmTrace, ClaudeCodeTrace):
        assert not reader.looks_like(lines)
    for other in ("mooncake_small.jsonl", "azure_small.csv", "requests_small.csv", "claude_code_small.jsonl"):
        assert not BailianTrace.looks_like((SAMPLES / other).read_text().splitlines())
    assert not BailianTrace.looks_like([])
