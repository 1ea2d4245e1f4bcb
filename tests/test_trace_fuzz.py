"""Whatever a file holds, a reader reads it or refuses it in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from trace_sources import SAMPLES, check_trace, load_lines

from pipeline.spec import InputError

FUZZ = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CONTEXT = 2000

number = st.one_of(
    st.integers(0, 5000),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1e300, 0.5]),
)
anything = st.recursive(
    st.none() | st.booleans() | number | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mooncake_rows(draw: st.DrawFn) -> dict[str, Any]:
    """A good row, of which up to two fields are replaced by anything."""
    inputs, block_tokens = draw(st.integers(1, 3000)), 512
    blocks = inputs // block_tokens + draw(st.booleans())
    row: dict[str, Any] = {
        "timestamp": draw(st.integers(0, 10**7)),
        "input_length": inputs,
        "output_length": draw(st.integers(0, 300)),
        "hash_ids": draw(st.lists(st.integers(0, 4), min_size=blocks, max_size=blocks)),
    }
    for field in draw(st.lists(st.sampled_from(sorted(row)), max_size=2)):
        row[field] = draw(anything | st.lists(st.integers(0, 9) | number, max_size=6))
    return row


cell = st.one_of(
    st.integers(0, 10**7).map(str),
    number.map(str),
    st.text(max_size=10),
    st.sampled_from(["2023-11-16 18:15:46.6805900", "2023-11-16T18:15:46+23:59", "nan", "", "1_0", '"', '"1"', "1e5"]),
)


def _read_or_refuse(option: str, data: bytes | list[bytes], **changes: Any) -> None:
    for bad_rows in ("refuse", "drop"):
        try:
            check_trace(load_lines(option, data, context=CONTEXT, bad_rows=bad_rows, **changes))
        except InputError as exc:
            assert str(exc).startswith("memory")
            assert "\n" not in str(exc)


@FUZZ
@given(st.lists(mooncake_rows(), min_size=1, max_size=5), st.sampled_from(["drop", "clip", "refuse"]))
def test_mooncake_records(rows: list[dict[str, Any]], too_long: str) -> None:
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    _read_or_refuse("mooncake_file", lines, too_long=too_long)


@FUZZ
@given(st.lists(st.tuples(cell, cell, cell), max_size=5), st.booleans())
def test_csv_cells(rows: list[tuple[str, str, str]], dates: bool) -> None:
    text = "".join(f"{','.join(row)}\n" for row in rows).encode("utf-8", "surrogatepass")
    _read_or_refuse("azure_conversation", b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + text)
    changes = {"arrival_unit_s": None if dates else 1.0}
    _read_or_refuse("csv_file", b"arrival_s,input_tokens,output_tokens\n" + text, **changes)
    _read_or_refuse("csv_file", text)


@pytest.mark.parametrize(
    ("option", "sample", "changes"),
    [
        ("mooncake_file", "mooncake_small.jsonl", {"block_tokens": 4}),
        ("azure_conversation", "azure_small.csv", {}),
        (
            "csv_file",
            "requests_small.csv",
            {
                "arrival_column": "sent_ms",
                "input_column": "prompt",
                "output_column": "answer",
                "session_column": "user",
            },
        ),
    ],
)
@FUZZ
@given(data=st.data())
def test_mutated_files(option: str, sample: str, changes: dict[str, Any], data: st.DataObject) -> None:
    text = bytearray((SAMPLES / sample).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(len(text) - 1, 0)))
        cut = data.draw(st.integers(0, 12))
        text[at : at + cut] = data.draw(st.binary(max_size=6) | st.sampled_from([b"\n", b"\r", b'"', b"-", b"9" * 20]))
    _read_or_refuse(option, bytes(text), **changes)


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for option in ("mooncake_file", "azure_conversation", "csv_file"):
        _read_or_refuse(option, data)


def _blocks_read(row: dict[str, Any]) -> bool:
    try:
        return load_lines("mooncake_file", [json.dumps(row).encode()], context=CONTEXT).trace.block_ids.size > 1
    except InputError:
        return False


def test_the_strategy_reaches_rows_that_are_read_and_rows_that_are_not() -> None:
    """A fuzz in which nothing is ever read, or nothing ever refused, would prove nothing."""
    either = settings(max_examples=200, derandomize=True, deadline=None)
    find(mooncake_rows(), _blocks_read, settings=either)
    find(mooncake_rows(), lambda row: not _blocks_read(row), settings=either)
