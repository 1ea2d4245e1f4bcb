"""What cannot be read is refused in one line with file and row, or dropped and counted if that is asked for."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from trace_sources import PLENTY, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace import lines as trace_lines

GOOD = b'{"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'


def _with(**fields: str) -> bytes:
    values = {"timestamp": "1", "input_length": "600", "output_length": "5", "hash_ids": "[1, 2]"} | fields
    return ("{" + ", ".join(f'"{k}": {v}' for k, v in values.items() if v) + "}\n").encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"not json\n", "line: given 'not json', expected one JSON object a line"),
        (b"[1, 2]\n", "line: given [1, 2], expected one JSON object"),
        (b"12\n", "line: given 12, expected one JSON object"),
        (b"[" * 100_000 + b"\n", "line: nested too deeply"),
        (b'{"a":' * 100_000 + b"\n", "line: nested too deeply"),
        (b"\xff\xfe{}\n", "line: not UTF-8 text"),
        (b"\x00\n", "line: holds NUL characters, expected UTF-8 text"),
        (GOOD.decode().strip().encode("utf-16-le") + b"\n", "line: holds NUL characters, expected UTF-8 text"),
        (GOOD.replace(b"{", b'{"user": "Zo\xeb", '), "line: not UTF-8 text (invalid continuation byte at byte 12)"),
        (b'[{"timestamp": 1, "input_length": 600}, [' + b"1, " * 500 + b"2]]\n", ", expected one JSON object a line"),
        (_with(timestamp=""), "timestamp: missing; found 'input_length', 'output_length', 'hash_ids'"),
        (_with(timestamp="null"), "timestamp: missing; found 'input_length', 'output_length', 'hash_ids'"),
        (b"{}\n", "timestamp: missing; found nothing"),
        (_with(timestamp="1700000000000000000"), "timestamp: given 1700000000000000000, expected a time from 0 to 292"),
        (_with(timestamp="-1"), "timestamp: given -1, expected a time from 0"),
        (_with(timestamp="NaN"), "NaN is not a number"),
        (_with(timestamp="-Infinity"), "-Infinity is not a number"),
        (_with(timestamp="1e999"), "timestamp: given inf, expected a time from 0"),
        (_with(timestamp="true"), "timestamp: given True, expected a number"),
        (_with(timestamp='"5"'), "timestamp: given '5', expected a number"),
        (_with(timestamp="1" * 400), "timestamp: given 111"),
        (_with(timestamp="1" * 5000), "line: given "),
        (_with(input_length="0"), "input_length: given 0, expected 1 to 1000000000 tokens"),
        (_with(input_length="-3"), "input_length: given -3"),
        (_with(input_length="600.5"), "input_length: given 600.5, expected a whole number of tokens"),
        (_with(input_length="true"), "input_length: given True, expected a whole number"),
        (_with(input_length='"six"'), "input_length: given 'six', expected a whole number"),
        (_with(input_length="[600]"), "input_length: given [600], expected a whole number"),
        (_with(input_length="9" * 30), "input_length: given 999"),
        (_with(output_length="-1"), "output_length: given -1, expected 0 to"),
        (_with(output_length="1e999"), "output_length: given inf, expected a whole number"),
        (_with(hash_ids="null"), "hash_ids: missing"),
        (_with(hash_ids="7"), "hash_ids: given 7, expected a list of integers"),
        (_with(hash_ids='"ab"'), "hash_ids: given 'ab', expected a list of integers"),
        (_with(hash_ids="[1, -2]"), "hash_ids: given [1, -2], expected a list of integers from 0 to 2^64 - 1"),
        (_with(hash_ids="[1, 2.0]"), "hash_ids: given [1, 2.0], expected a list"),
        (_with(hash_ids="[1, true]"), "hash_ids: given [1, True], expected a list"),
        (_with(hash_ids=f"[1, {2**64}]"), "hash_ids: given [1, 18446744073709551616], expected a list"),
        (_with(hash_ids='[1, {"a": [1]}]'), "hash_ids: given "),
        (_with(hash_ids="[]"), "hash_ids: given 0 ids for 600 tokens, expected 2 (all blocks) or 1 (full blocks)"),
        (_with(hash_ids="[1, 2, 3]"), "hash_ids: given 3 ids for 600 tokens, expected 2 (all blocks) or 1"),
        (_with(hash_ids='"' + "x" * 5000 + '"'), "hash_ids: given 'xxx"),
    ],
)
def test_a_bad_row_is_refused_with_its_number_or_dropped(line: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_lines("mooncake_file", [GOOD, b"\n", line, GOOD])
    text = str(refused.value)
    assert text.startswith("memory, row 3: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 500
    loaded = load_lines("mooncake_file", [GOOD, b"\n", line, GOOD], bad_rows="drop")
    check_trace(loaded)
    assert loaded.trace.request_count == 2
    (dropped,) = (v for k, v in quality(loaded.quality).items() if k.startswith("dropped: unreadable "))
    assert dropped == (1, "[3]")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1,2\n", "line: given 2 values, expected 3 as in the header"),
        (b"1,2,3,4\n", "line: given 4 values, expected 3"),
        (b"1,,3\n", "input_tokens: missing"),
        (b"nan,2,3\n", "arrival_s: given 'nan', expected a number"),
        (b"1,inf,3\n", "input_tokens: given 'inf', expected a number"),
        (b"1,1e999,3\n", "input_tokens: given inf, expected a whole number"),
        (b"-1,2,3\n", "arrival_s: given -1.0, expected a time from 0"),
        (b"1700000000000,2,3\n", "in units of 1 s (trace.arrival_unit_s says how many seconds its unit has"),
        (
            b"2023-11-16 18:15:46,2,3\n",
            "(trace.arrival_unit_s says how many seconds its unit has; null: dates and times)",
        ),
        (b"1,2_0,3\n", "input_tokens: given '2_0', expected a number"),
        ("1,٣,3\n".encode(), "input_tokens: given '\\u0663', expected a number"),
        (b"1,0x10,3\n", "input_tokens: given '0x10', expected a number"),
        (b'1,"2,3\n', "line: given "),
        (b"1," + b"9" * 5000 + b",3\n", "input_tokens: given '999"),
        (b"1,0,3\n", "input_tokens: given 0.0, expected 1 to"),
    ],
)
def test_a_bad_csv_row_is_refused(line: bytes, message: str) -> None:
    header = b"arrival_s,input_tokens,output_tokens\n"
    with pytest.raises(InputError) as refused:
        load_lines("csv_file", [header, b"0,1,2\n", line])
    assert str(refused.value).startswith("memory, row 3: ")
    assert message in str(refused.value)
    loaded = load_lines("csv_file", [header, b"0,1,2\n", line], bad_rows="drop")
    assert loaded.trace.request_count == 1


@pytest.mark.parametrize(
    "text",
    [b"yesterday", b"2023-13-01 00:00:00", b"2023-02-30 00:00:00", b"2023-02-01 25:00:00", b"1969-01-01 00:00:00",
     b"9999-01-01 00:00:00", b"2023-02-01", b"12", b"", b"2023-02-01 00:00:00+99:00", b"0000-01-01 00:00:00",
     "2023-02-01 00:00:00.\u0663".encode()],
)  # fmt: skip
def test_a_bad_date_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match="memory, row 2: TIMESTAMP: "):
        load_lines("azure_conversation", [b"TIMESTAMP,ContextTokens,GeneratedTokens\n", text + b",1,1\n"])


@pytest.mark.parametrize("bad_rows", ["refuse", "drop"])
@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            b"time,input_tokens,output_tokens\n",
            "row 1: header: column 'arrival_s' is missing; found 'time', 'input_tokens', 'output_tokens' "
            "(trace.arrival_column, input_column and output_column say which to read)",
        ),
        (b"arrival_s,input_tokens,output_tokens,arrival_s\n", "row 1: header: column 'arrival_s' is there twice"),
        (b'arrival_s,"input_tokens\n', "row 1: header: line: given"),
    ],
)
def test_a_bad_header_stops_in_any_case(bad_rows: str, header: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_lines("csv_file", [header, b"0,1,2\n"], bad_rows=bad_rows)
    assert message in str(refused.value)


@pytest.mark.parametrize("option", ["mooncake_file", "azure_conversation", "csv_file"])
@pytest.mark.parametrize("bad_rows", ["refuse", "drop"])
def test_an_empty_file_is_refused(option: str, bad_rows: str) -> None:
    with pytest.raises(InputError, match="memory: is empty, expected at least one request"):
        load_lines(option, b"", bad_rows=bad_rows)
    with pytest.raises(InputError, match="memory: holds no rows, expected at least one request"):
        load_lines(option, b"\n \n", bad_rows=bad_rows)


def test_a_file_with_a_header_only_is_refused() -> None:
    with pytest.raises(InputError, match="memory: holds no rows, expected at least one request"):
        load_lines("azure_conversation", b"TIMESTAMP,ContextTokens,GeneratedTokens\n")


def test_nothing_left_says_why() -> None:
    failed = _with(output_length="0")
    with pytest.raises(InputError) as refused:
        load_lines("mooncake_file", [GOOD, failed, b"x\n"], context=100, bad_rows="drop")
    assert str(refused.value) == (
        "memory: no request is left of 3 rows; dropped: 1 no output (failed request), 1 unreadable line, "
        "1 prompt and output longer than the model's context"
    )


def test_a_file_of_one_line_is_not_taken_for_one_cut_off() -> None:
    with pytest.raises(InputError) as refused:
        load_lines("mooncake_file", b'{"requests": [1, 2]}')
    assert str(refused.value) == "memory, row 1: timestamp: missing; found 'requests'"


def test_a_last_line_cut_off_is_named_so() -> None:
    cut = GOOD[:30]
    with pytest.raises(InputError, match=r"row 2: .*cut off\?"):
        load_lines("mooncake_file", [GOOD, cut])
    counts = quality(load_lines("mooncake_file", [GOOD, cut], bad_rows="drop").quality)
    assert counts["dropped: last line, cut off"] == (1, "[2]")


def test_a_missing_or_unreadable_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path, Path("a\0b")):
        with pytest.raises(InputError, match=r"trace.path: given '.*', expected a readable file \("):
            source("mooncake_file", path=str(path)).load(0, PLENTY)
    with pytest.raises(InputError, match=r"trace.path: KVPLAN_DATA is not set; give trace.path=FILE"):
        source("mooncake_conversation", path=None).file()
    assert source("chat").file() is None
    assert source("csv_file", path="a/b.csv").file() == Path("a/b.csv")


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"PK\x03\x04", "a zip archive"),
        (b"BZh9", "a bzip2 file"),
        (b"\xfd7zXZ", "an xz file"),
        (b"PAR1", r"a parquet file \(trace=parquet_file reads one\)"),
        (GOOD.decode().encode("utf-16"), "UTF-16 text"),
        (b"\xfe\xff\0{", "UTF-16 text"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, start: bytes, kind: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(start + b"\x80" * 50)
    with pytest.raises(
        InputError, match=f"trace.path: given '.*t', which is {kind}, expected UTF-8 text, plain or in "
    ):
        source("mooncake_file", path=str(path), bad_rows="drop").load(0, PLENTY)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("bad_rows", ["refuse", "drop"])
def test_a_damaged_archive_is_refused_whatever_bad_rows_says(tmp_path: Path, codec: str, bad_rows: str) -> None:
    lines = b"".join(GOOD.replace(b"600", b"%d" % (513 + i % 500)) for i in range(5000))
    packed = pa.compress(lines, codec, asbytes=True)
    path = tmp_path / "t"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match=r"t, after row \d+: cannot be read to its end"):
        source("mooncake_file", path=str(path), bad_rows=bad_rows).load(0, PLENTY)


def test_garbage_behind_a_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(GOOD) + b"garbage")
    with pytest.raises(InputError, match="cannot be read to its end"):
        source("mooncake_file", path=str(path)).load(0, PLENTY)


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_lines, "LINE_LIMIT_BYTES", 1000)
    path = tmp_path / "t"
    path.write_bytes(GOOD + b"x" * 5000)
    with pytest.raises(InputError, match="row 2: longer than 1000 bytes"):
        source("mooncake_file", path=str(path)).load(0, PLENTY)


def test_reading_streams() -> None:
    rows, padding = 20_000, b'"note": "' + b"x" * 2000 + b'", '

    def lines(_: Path) -> Iterator[bytes]:
        for i in range(rows):
            yield b'{%s"timestamp": %d, "input_length": 5, "output_length": 5, "hash_ids": []}\n' % (padding, i)

    trace = source("mooncake_file", spread_time_buckets=False)
    trace.load(0, PLENTY, lambda _: iter([GOOD]))
    tracemalloc.start()
    try:
        assert trace.load(0, PLENTY, lines).trace.request_count == rows
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 500 * rows, "the text alone is over 2,000 bytes a row"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bad_rows": "skip"}, "trace.bad_rows: given 'skip'"),
        ({"too_long": "cut"}, "trace.too_long: given 'cut'"),
        ({"max_requests": 0}, "trace.max_requests: given 0"),
        ({"window_s": -1}, "trace.window_s: given -1"),
        ({"block_tokens": 0}, "trace.block_tokens: given 0"),
        ({"block_size": 16}, "trace.block_size: unknown key; allowed: "),
    ],
)
def test_a_wrong_option_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        source("mooncake_file", **changes)
    assert message in str(refused.value)
