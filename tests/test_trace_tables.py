"""Readers of tables: BurstGPT, splitwise-sim, any CSV and any parquet by their columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_sources import PLENTY, SAMPLES, chains, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace.base import LoadedTrace

BURST = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_3 = b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_burstgpt_sample() -> None:
    loaded = source("burstgpt", path=str(SAMPLES / "burstgpt_small.csv")).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    assert trace.arrival_s.tolist() == [0, 2, 2, 3.5, 80, 90]
    assert trace.input_tokens.tolist() == [906, 36, 250, 250, 18, 1400]
    assert trace.output_tokens.tolist() == [446, 29, 12, 1, 300, 80]
    # aaaa-1 comes back at the end; calls of the API have no session and are one each.
    assert trace.session_id.tolist() == [0, 1, 2, 3, 4, 0]
    assert trace.classes == ("Conversation log", "API log")
    assert trace.class_id.tolist() == [0, 0, 1, 1, 1, 0]
    assert np.isnan(trace.think_s).all()
    assert not trace.has_prefixes
    assert quality(loaded.quality) == {
        "read": (8, "[2, 3, 4, 5, 6]"),
        "kept": (6, "[2, 3, 4, 5, 9]"),
        "changed: earlier than a row before it, sorted by time": (1, "[10]"),
        "dropped: no output (failed request)": (2, "[6, 8]"),
        "ignored: blank line": (1, "[7]"),
        "noted: one output token, so no time per output token": (1, "[5]"),
    }


def test_burstgpt_of_the_first_files_has_no_sessions() -> None:
    loaded = load_lines(
        "burstgpt", BURST + b"5,ChatGPT,10,2,12,API log\n6,GPT-4,11,3,14,API log\n", class_column="Model"
    )
    assert loaded.trace.session_id.tolist() == [0, 1]
    assert loaded.trace.classes == ("ChatGPT", "GPT-4")
    unlabelled = load_lines("burstgpt", BURST + b"5,,10,2,12,\n", class_column=None).trace
    assert unlabelled.classes == ("burstgpt",)


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        (
            BURST,
            b"5,GPT-4,10,2,13,API log\n",
            "row 2: Total tokens: given 13, expected the sum of 10 request and 2 resp",
        ),
        (BURST, b"5,GPT-4,0,2,2,API log\n", "row 2: Request tokens: given 0.0, expected 1 to"),
        (BURST, b"5,GPT-4,10,,10,API log\n", "row 2: Response tokens: missing"),
        (BURST, b"-5,GPT-4,10,2,12,API log\n", "row 2: Timestamp: given -5.0, expected a time from 0"),
        (BURST, b"5,GPT-4,10,2,12, \n", "row 2: Log Type: missing"),
        (BURST_3, b"5,GPT-4,10,2,12,API log\n", "row 2: line: given 6 values, expected 8"),
        (BURST_3.replace(b"Elapsed time", b"Session ID"), b"", "header: column 'Session ID' is there twice"),
        (BURST.replace(b"Total tokens", b"Sum"), b"", "header: column 'Total tokens' is missing"),
    ],
)
def test_a_bad_burstgpt_row_is_refused(header: bytes, line: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_lines("burstgpt", header + line)
    assert message in str(refused.value)


def test_splitwise_sample() -> None:
    loaded = source("splitwise", path=str(SAMPLES / "splitwise_small.csv"), class_column="application_id").load(
        0, PLENTY
    )
    check_trace(loaded)
    trace = loaded.trace
    np.testing.assert_allclose(trace.arrival_s, [0, 0.01, 0.055, 1.2238583, 1.4738583], atol=1e-12)
    assert trace.input_tokens.tolist() == [374, 396, 879, 23, 1313]
    assert trace.output_tokens.tolist() == [44, 109, 1, 8, 28]
    assert trace.session_id.tolist() == [0, 1, 2, 4, 3]
    assert trace.classes == ("application 0", "application 1")
    assert trace.class_id.tolist() == [0, 0, 1, 0, 1]
    assert quality(loaded.quality)["dropped: no output (failed request)"] == (1, "[5]")
    assert source("splitwise", path=str(SAMPLES / "splitwise_small.csv")).load(0, PLENTY).trace.classes == (
        "splitwise",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1,2,0,1,1,5,6\n", "row 3: request id: given '1', which a row before it has"),
        (b" ,2,0,1,1,5,6\n", "row 3: request_id: missing"),
        (b"2,1,0,1,1,5,6\n", "row 3: request_type: given '1', expected 2 (generation by an LLM)"),
        (b"2,2,0,1,8,5,6\n", "row 3: batch_size: given '8', expected 1 (one prompt a request)"),
        (b"2,2,0,-1,1,5,6\n", "row 3: arrival_timestamp: given -1.0, expected a time from 0"),
        (b"2,2,0,1,1,0,6\n", "row 3: prompt_size: given 0.0, expected 1 to"),
        (b"2,2,0,1,1,5,6.5\n", "row 3: token_size: given 6.5, expected a whole number of tokens"),
    ],
)
def test_a_bad_splitwise_row_is_refused_or_dropped(line: bytes, message: str) -> None:
    header = (
        b"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n1,2,0,1,1,5,6\n"
    )
    with pytest.raises(InputError) as refused:
        load_lines("splitwise", header + line)
    assert message in str(refused.value)
    loaded = load_lines("splitwise", header + line, bad_rows="drop")
    assert loaded.trace.request_count == 1
    assert sum(count for reason, (count, _) in quality(loaded.quality).items() if reason.startswith("dropped")) == 1


THINKING = {"session_column": "user", "think_column": "gap", "request_id_column": "id"}
TABLE = b"id,user,arrival_s,gap,input_tokens,output_tokens\n"


def test_csv_sessions_run_closed_loop_with_think_times() -> None:
    text = TABLE + b"1,a,0,9,5,2\n2,b,1,,5,2\n3,a,7,2.5,5,2\n4,b,3,0,5,2\n5,a,9, ,5,2\n"
    loaded = load_lines("csv_file", text, **THINKING)
    check_trace(loaded)
    # a's first 9 is from nothing in the file; its third request, of which none is known, comes at its time.
    assert loaded.trace.session_id.tolist() == [0, 1, 1, 0, 0]
    np.testing.assert_array_equal(loaded.trace.think_s, [np.nan, np.nan, 0, 2.5, np.nan])
    in_order = load_lines("csv_file", TABLE + b"1,a,0,9,5,2\n3,a,7,2.5,5,2\n", **THINKING)
    np.testing.assert_array_equal(in_order.trace.think_s, [np.nan, 2.5])
    open_loop = load_lines("csv_file", text, session_column="user")
    assert np.isnan(open_loop.trace.think_s).all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1,a,5,1,5,2\n", "row 3: request id: given '1', which a row before it has"),
        (b",a,5,1,5,2\n", "row 3: id: missing"),
        (b"2,a,5,-1,5,2\n", "row 3: gap: given -1.0, expected a time from 0"),
        (b"2,a,5,soon,5,2\n", "row 3: gap: given 'soon', expected a number"),
        (b"2,,5,1,5,2\n", "row 3: user: missing"),
    ],
)
def test_a_bad_session_or_think_time_is_refused(line: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_lines("csv_file", TABLE + b"1,a,0,,5,2\n" + line, **THINKING)
    assert message in str(refused.value)


def test_think_times_need_sessions() -> None:
    with pytest.raises(
        InputError, match="think_column: is from one request of a session to the next; expected a session_c"
    ):
        source("csv_file", think_column="gap")


SAMPLE = str(SAMPLES / "parquet_small.parquet")
PARQUET = {
    "session_column": "user",
    "class_column": "kind",
    "think_column": "think_s",
    "request_id_column": "id",
    "hash_ids_column": "hash_ids",
    "block_tokens": 4,
}


def test_parquet_sample() -> None:
    loaded = source("parquet_file", path=SAMPLE, **PARQUET).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    assert trace.arrival_s.tolist() == [0, 0.5, 9, 12, 13]
    assert trace.input_tokens.tolist() == [10, 8, 13, 12, 5]
    assert trace.output_tokens.tolist() == [5, 1, 4, 3, 2]
    assert trace.session_id.tolist() == [0, 1, 0, 1, 0]
    assert trace.classes == ("chat", "code")
    assert trace.class_id.tolist() == [0, 1, 0, 1, 0]
    np.testing.assert_array_equal(trace.think_s, [np.nan, np.nan, 6.25, 7.5, 1])
    # 10 tokens fill 2 of 3 listed blocks; 13 fill 3 and 3 are listed; -8 is another id than 8.
    assert trace.has_prefixes
    assert chains(loaded) == [[0, 1], [0, 1], [0, 1, 2], [0, 3, 4], [5]]
    assert quality(loaded.quality) == {
        "read": (6, "[1, 2, 3, 4, 5]"),
        "kept": (5, "[1, 2, 3, 5, 6]"),
        "changed: block id met under another prefix, numbered as another block": (1, "[5]"),
        "dropped: no output (failed request)": (1, "[4]"),
        "noted: one output token, so no time per output token": (1, "[2]"),
    }
    plain = source("parquet_file", path=SAMPLE).load(0, PLENTY).trace
    assert not plain.has_prefixes
    assert plain.session_id.tolist() == [0, 1, 2, 3, 4]
    assert np.isnan(plain.think_s).all()


def test_parquet_timestamps_and_a_null_with_its_row() -> None:
    changes = {"path": SAMPLE, "arrival_column": "sent", "arrival_unit_s": None}
    with pytest.raises(InputError, match=r"parquet_small.parquet, row 6: sent: missing$"):
        source("parquet_file", **changes).load(0, PLENTY)
    loaded = source("parquet_file", bad_rows="drop", **changes).load(0, PLENTY)
    assert loaded.trace.arrival_s.tolist() == [0, 0.5, 9, 12]
    assert quality(loaded.quality)["dropped: unreadable sent"] == (1, "[6]")


GIVEN: dict[str, Any] = {
    "arrival_s": pa.array([1, 2], pa.int64()),
    "input_tokens": pa.array([3, 4], pa.int64()),
    "output_tokens": pa.array([5, 6], pa.int64()),
}


def _parquet(tmp_path: Path, columns: dict[str, Any], **changes: Any) -> LoadedTrace:
    path = tmp_path / "t"
    pq.write_table(pa.table(GIVEN | columns), path)
    return source("parquet_file", **{"path": str(path)} | changes).load(0, PLENTY)


@pytest.mark.parametrize(
    ("arrivals", "unit_s"),
    [
        (pa.array([0, 1500], pa.timestamp("ms", "Europe/Berlin")), None),
        (pa.array([10**9, 2_500_000_000], pa.timestamp("ns")), None),
        (pa.array(["2026-01-01 00:00:00", "2026-01-01T00:00:01.5Z"]), None),
        (pa.array(["2", "3.5"], pa.large_string()), 1.0),
        (pa.array([Decimal("20.00"), Decimal("35.00")], pa.decimal128(9, 2)), 0.1),
        (pa.array([0, 1.5], pa.float32()), 1.0),
        (pa.array([200, 203], pa.uint8()), 0.5),
    ],
)
def test_parquet_arrivals_of_many_types(tmp_path: Path, arrivals: pa.Array, unit_s: float | None) -> None:
    trace = _parquet(tmp_path, {"arrival_s": arrivals}, arrival_unit_s=unit_s).trace
    np.testing.assert_allclose(trace.arrival_s, [0, 1.5], atol=1e-12)


MS = pa.timestamp("ms")
DATES = {"arrival_unit_s": None}
HASHES = {"hash_ids_column": "h"}


@pytest.mark.parametrize(
    ("column", "values", "changes", "message"),
    [
        ("input_tokens", pa.array([3, None]), {}, "t, row 2: input_tokens: missing"),
        ("input_tokens", pa.array([3, 2.5]), {}, "t, row 2: input_tokens: given 2.5, expected a whole number"),
        ("input_tokens", pa.array([3, float("nan")]), {}, "t, row 2: input_tokens: given nan, expected a whole"),
        ("input_tokens", pa.array(["3", "x"]), {}, "t, row 2: input_tokens: given 'x', expected a number"),
        ("input_tokens", pa.array([b"3", b"\xff"]).view(pa.string()), {}, "row 2: input_tokens: given '\\ufffd'"),
        ("input_tokens", pa.array([True, True]), {}, "'input_tokens' is of type bool, expected a number or text"),
        ("arrival_s", pa.array([0, -1]), {}, "t, row 2: arrival_s: given -1, expected a time from 0"),
        ("arrival_s", pa.array([0, 2**62]), {}, "(trace.arrival_unit_s says how many seconds its unit has"),
        ("arrival_s", pa.array([0, 2**50], MS), DATES, "row 2: arrival_s: given 1125899906842624000000 ns since 1970"),
        ("arrival_s", pa.array([0, -1], MS), DATES, "row 2: arrival_s: given -1000000 ns since 1970, expected a date"),
        ("arrival_s", pa.array([0, None], MS), DATES, "t, row 2: arrival_s: missing"),
        ("arrival_s", pa.array([0, 1], MS), {}, "is of type timestamp[ms], expected a number or text (trace.arrival_u"),
        ("arrival_s", pa.array([0, 1]), DATES, "'arrival_s' is of type int64, expected text or a timestamp (trace.arr"),
        (
            "uses",
            pa.array([0, 1]),
            {"session_column": "user"},
            "column 'user' is missing; found 'arrival_s', 'input_to",
        ),
        ("user", pa.array(["a", None]), {"session_column": "user"}, "t, row 2: user: missing"),
        ("id", pa.array([7, 7]), {"request_id_column": "id"}, "t, row 2: request id: given '7', which a row before"),
        ("h", pa.array([[], None], pa.list_(pa.int8())), HASHES, "t, row 2: h: missing"),
        ("h", pa.array([[], [None]], pa.list_(pa.int8())), HASHES, "row 2: h: given [None], expected a list of int"),
        ("h", pa.array([[], [1, 2]]), HASHES, "row 2: h: given 2 ids for 4 tokens, expected 1 (all blocks) or 0 (full"),
        ("h", pa.array(["1", "2"]), HASHES, "'h' is of type string, expected a list of integers"),
        ("h", pa.array([[0.5], []]), HASHES, "expected a list of integers"),
    ],
)
def test_a_bad_parquet_file_is_refused(
    tmp_path: Path, column: str, values: pa.Array, changes: Any, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        _parquet(tmp_path, {column: values}, **changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "t"))
    assert "cannot be read" not in str(refused.value)


def test_parquet_ids_take_both_signs(tmp_path: Path) -> None:
    changes = {"hash_ids_column": "h", "block_tokens": 2}
    unsigned = _parquet(tmp_path, {"h": pa.array([[2**64 - 1], [2**64 - 1, 1]], pa.list_(pa.uint64()))}, **changes)
    signed = _parquet(tmp_path, {"h": pa.array([[-1], [-1, 1]], pa.large_list(pa.int64()))}, **changes)
    assert chains(unsigned) == chains(signed) == [[0], [0, 1]]


def test_a_file_that_is_not_parquet_to_its_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    whole = Path(SAMPLE).read_bytes()
    for content, message in [
        (b"", "expected a parquet file"),
        (b"arrival_s,input_tokens\n", "expected a parquet file"),
        (whole[:-200], "after row 0: cannot be read to its end: "),
        (whole[:4] + b"\0" * 200 + whole[204:], "after row 0: cannot be read to its end: "),
    ]:
        path.write_bytes(content)
        with pytest.raises(InputError, match=message) as refused:
            source("parquet_file", path=str(path), bad_rows="drop").load(0, PLENTY)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="expected a readable file"):
        source("parquet_file", path=str(tmp_path / "none")).load(0, PLENTY)
    empty = {name: pa.array([], pa.int64()) for name in GIVEN}
    with pytest.raises(InputError, match="holds no rows, expected at least one request"):
        _parquet(tmp_path, empty)


def test_parquet_is_named_to_who_reads_it_as_text() -> None:
    with pytest.raises(
        InputError, match=r"which is a parquet file \(trace=parquet_file reads one\), expected UTF-8 text"
    ):
        source("csv_file", path=SAMPLE).load(0, PLENTY)
