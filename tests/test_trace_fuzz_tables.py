"""Whatever tables, logs and captures hold, their readers read it or refuse it in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from trace_sources import SAMPLES, check_trace, load_lines, source

from pipeline.spec import InputError

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CONTEXT = 2000
TEXT_SAMPLES = {
    "burstgpt": ("burstgpt_small.csv", {}),
    "splitwise": ("splitwise_small.csv", {"class_column": "application_id"}),
    "vllm_log": ("vllm_log_small.log", {"block_tokens": 4}),
    "vllm_kv_events": ("vllm_kv_events_small.jsonl", {"block_tokens": 4}),
}
PARQUET = {
    "session_column": "user",
    "class_column": "kind",
    "think_column": "think_s",
    "request_id_column": "id",
    "hash_ids_column": "hash_ids",
    "block_tokens": 4,
}

number = st.integers(0, 50) | st.integers(-(2**70), 2**260) | st.floats()
anything = st.recursive(
    st.none() | st.booleans() | number | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
cell = st.one_of(
    number.map(str),
    st.text(max_size=8),
    st.sampled_from(["", " ", "1", "2", "1e5", '"', '"1"', "API log", "nan", "1_0", "-0", "2023-01-01 00:00:00"]),
)


def _read_or_refuse(option: str, data: bytes | list[bytes], **changes: Any) -> None:
    _loads_or_refuses(lambda bad_rows: load_lines(option, data, context=CONTEXT, bad_rows=bad_rows, **changes))


def _loads_or_refuses(load: Callable[[str], Any], start: str = "memory") -> None:
    for bad_rows in ("refuse", "drop"):
        try:
            check_trace(load(bad_rows))
        except InputError as exc:
            assert start in str(exc)
            assert "\n" not in str(exc)


@FUZZ
@given(st.lists(st.lists(cell, min_size=8, max_size=8), max_size=4))
def test_cells(rows: list[list[str]]) -> None:
    def text(columns: str) -> bytes:
        count = columns.count(",") + 1
        lines = [columns, *(",".join(row[:count]) for row in rows)]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")

    _read_or_refuse("burstgpt", text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"))
    extended = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    _read_or_refuse("burstgpt", text(extended), class_column="Model")
    columns = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
    _read_or_refuse("splitwise", text(columns))
    thinking = {"session_column": "user", "think_column": "gap", "request_id_column": "id"}
    _read_or_refuse("csv_file", text("arrival_s,input_tokens,output_tokens,user,gap,id"), **thinking)


@pytest.mark.parametrize("option", sorted(TEXT_SAMPLES))
@FUZZ
@given(data=st.data())
def test_mutated_files(option: str, data: st.DataObject) -> None:
    sample, changes = TEXT_SAMPLES[option]
    text = bytearray((SAMPLES / sample).read_bytes())
    pieces = [b"\n", b"\r", b'"', b"'", b"\\", b"-", b"[", b"]", b"9" * 20, b"null", b"None", b", ", b"\x1b[0m"]
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(len(text) - 1, 0)))
        cut = data.draw(st.integers(0, 12))
        text[at : at + cut] = data.draw(st.binary(max_size=6) | st.sampled_from(pieces))
    _read_or_refuse(option, bytes(text), **changes)


@FUZZ
@given(data=st.data())
def test_shuffled_lines_of_a_log(data: st.DataObject) -> None:
    lines = (SAMPLES / "vllm_log_small.log").read_bytes().splitlines(keepends=True)
    chosen = data.draw(st.lists(st.sampled_from(lines), max_size=12))
    options = {"output": data.draw(st.sampled_from(["logged", "max_tokens"])), "block_tokens": 4}
    _read_or_refuse("vllm_log", chosen, **options)


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """A good batch, of which up to two fields are replaced by anything."""
    hashes = draw(st.lists(st.integers(0, 6), max_size=3))
    event = {
        "type": draw(st.sampled_from(["BlockStored"] * 8 + ["BlockRemoved", "AllBlocksCleared"])),
        "block_hashes": hashes,
        "parent_block_hash": draw(st.none() | st.integers(0, 6)),
        "token_ids": [value for value in hashes for _ in range(2)],
        "block_size": 2,
    }
    told = {"ts": draw(st.floats(0, 40)), "events": [event], "data_parallel_rank": draw(st.sampled_from([None, 0, 1]))}
    for changed in (event, told):
        for name in (
            draw(st.lists(st.sampled_from(sorted(changed)), max_size=1)) if draw(st.integers(0, 4)) == 0 else ()
        ):
            changed[name] = draw(anything)
    listed = [event["type"], *list(event.values())[1:]]
    return [told["ts"], [listed], told["data_parallel_rank"]] if draw(st.booleans()) else told


@FUZZ
@given(st.lists(batches(), min_size=1, max_size=8))
def test_batches_of_events(lines: list[Any]) -> None:
    _read_or_refuse("vllm_kv_events", [json.dumps(line).encode() + b"\n" for line in lines], block_tokens=2)


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for option in TEXT_SAMPLES:
        _read_or_refuse(option, data)


@settings(FUZZ, max_examples=150)
@given(data=st.data())
def test_mutated_parquet(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray((SAMPLES / "parquet_small.parquet").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    _read_parquet(tmp_path_factory, bytes(content), **PARQUET)


column = st.one_of(
    st.lists(st.none() | st.integers(-5, 3000), min_size=3, max_size=3),
    st.lists(st.integers(1, 3000), min_size=3, max_size=3),
    st.lists(st.none() | st.floats(), min_size=3, max_size=3),
    st.lists(st.none() | st.text(max_size=4) | st.integers(0, 99).map(str), min_size=3, max_size=3),
    st.lists(st.datetimes(), min_size=3, max_size=3),
    st.lists(st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3), min_size=3, max_size=3),
)


@FUZZ
@given(st.lists(column, min_size=8, max_size=8), st.booleans())
def test_columns_of_parquet(tmp_path_factory: pytest.TempPathFactory, columns: list[Any], dates: bool) -> None:
    names = ["arrival_s", "input_tokens", "output_tokens", "user", "kind", "think_s", "id", "hash_ids"]
    path = tmp_path_factory.mktemp("p") / "t"
    pq.write_table(pa.table([pa.array(values) for values in columns], names), path)
    changes = {"arrival_unit_s": None if dates else 1.0}
    _read_parquet(tmp_path_factory, path.read_bytes(), **PARQUET, **changes)
    _read_parquet(tmp_path_factory, path.read_bytes(), **changes)


def _read_parquet(folder: pytest.TempPathFactory, content: bytes, **changes: Any) -> None:
    path: Path = folder.getbasetemp() / "fuzzed.parquet"
    path.write_bytes(content)

    def load(bad_rows: str) -> Any:
        return source("parquet_file", path=str(path), bad_rows=bad_rows, **changes).load(0, CONTEXT)

    _loads_or_refuses(load, str(path))


def _infers(lines: list[Any]) -> bool:
    try:
        data = [json.dumps(line).encode() for line in lines]
        trace = load_lines("vllm_kv_events", data, block_tokens=2).trace
    except InputError:
        return False
    return bool((trace.output_tokens == 2).any())


def test_the_strategy_reaches_requests_with_output_and_batches_that_are_refused() -> None:
    either = settings(max_examples=2000, derandomize=True, deadline=None, phases=[Phase.generate])
    find(st.lists(batches(), min_size=1, max_size=8), _infers, settings=either)
    find(st.lists(batches(), min_size=1, max_size=8), lambda lines: not _infers(lines), settings=either)
