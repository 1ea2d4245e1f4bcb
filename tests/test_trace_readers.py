"""Readers: exact traces from small files, and every row accounted for."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from trace_sources import PLENTY, SAMPLES, chains, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace.blocks import number_blocks
from pipeline.trace.storage import to_arrays

EXACT = {"block_tokens": 4, "spread_time_buckets": False}


def _mooncake(**changes: Any) -> Any:
    return source("mooncake_file", **{"path": str(SAMPLES / "mooncake_small.jsonl")} | EXACT | changes)


def test_mooncake_sample() -> None:
    loaded = _mooncake().load(0, 50)
    check_trace(loaded)
    trace = loaded.trace
    assert (trace.name, trace.block_tokens, trace.classes, trace.has_prefixes) == (
        "mooncake_file",
        4,
        ("mooncake_file",),
        True,
    )
    assert trace.input_tokens.tolist() == [10, 8, 13, 3, 12]
    assert trace.output_tokens.tolist() == [5, 1, 4, 2, 3]
    assert trace.arrival_s.tolist() == [0, 0, 3, 6, 6]
    assert np.isnan(trace.think_s).all()
    # 10 tokens fill 2 of 3 listed blocks; 13 fill 3 and 3 are listed (floor); 3 fill none; 12 fill all 3.
    assert chains(loaded) == [[0, 1], [0, 1], [0, 1, 2], [], [0, 1, 2]]
    # prefix groups: (7, 8) and (12,)
    assert trace.session_id.tolist() == [0, 0, 0, 1, 0]
    assert quality(loaded.quality) == {
        "read": (7, "[1, 2, 4, 5, 6]"),
        "kept": (5, "[1, 2, 5, 6, 8]"),
        "dropped: no output (failed request)": (1, "[4]"),
        "dropped: prompt and output longer than the model's context": (1, "[7]"),
        "ignored: blank line": (1, "[3]"),
        "noted: one output token, so no time per output token": (1, "[2]"),
    }
    assert set(loaded.quality.column("path").to_pylist()) == {str(SAMPLES / "mooncake_small.jsonl")}


def test_rows_out_of_order_are_sorted_with_their_blocks() -> None:
    loaded = _mooncake().load(0, PLENTY)
    check_trace(loaded)
    assert loaded.trace.input_tokens.tolist() == [10, 8, 13, 100, 3, 12]
    assert loaded.trace.arrival_s.tolist() == [0, 0, 3, 4.5, 6, 6]
    assert [len(chain) for chain in chains(loaded)] == [2, 2, 3, 25, 0, 3]


def test_a_long_request_is_clipped_to_what_the_engine_would_serve() -> None:
    trace = _mooncake(too_long="clip").load(0, 14).trace
    # context 14: (10, 5) -> output 4; (13, 4) -> output 1; (100, 2) -> prompt 13, output 1; (12, 3) -> output 2
    assert trace.input_tokens.tolist() == [10, 8, 13, 13, 3, 12]
    assert trace.output_tokens.tolist() == [4, 1, 1, 1, 2, 2]
    assert np.diff(trace.block_offset).tolist() == [2, 2, 3, 3, 0, 3]
    assert "changed: longer than the model's context, clipped" in quality(
        _mooncake(too_long="clip").load(0, 14).quality
    )


def test_a_long_request_is_refused_with_its_row() -> None:
    with pytest.raises(InputError, match=r"small.jsonl, row 7: 100 prompt and 2 output tokens .* context of 50 .*drop"):
        _mooncake(too_long="refuse").load(0, 50)


def test_windows_start_at_the_beginning() -> None:
    loaded = _mooncake(max_requests=3).load(0, PLENTY)
    check_trace(loaded)
    assert loaded.trace.input_tokens.tolist() == [10, 8, 13]
    assert quality(loaded.quality)["dropped: behind the window (max_requests)"] == (3, "[6, 7, 8]")
    loaded = _mooncake(window_s=4.5).load(0, PLENTY)
    assert loaded.trace.input_tokens.tolist() == [10, 8, 13]
    assert quality(loaded.quality)["dropped: behind the window (window_s)"] == (3, "[6, 7, 8]")


def test_time_buckets_are_spread_in_order() -> None:
    lines = [_line(3000 * (i // 10), i + 1) for i in range(100)]
    options = {"block_tokens": 512, "spread_time_buckets": True}
    trace = source("mooncake_file", **options)
    loaded = load_lines("mooncake_file", lines, **options)
    one = replace(loaded, trace=trace.jittered(loaded.trace, 0))
    check_trace(one)
    assert one.trace.input_tokens.tolist() == list(range(1, 101))
    assert np.unique(one.trace.arrival_s).size == 100
    first_s = one.trace.arrival_s.reshape(10, 10)
    spread = first_s - first_s[:, :1]
    assert (spread < 3).all()
    assert 0.5 < spread.mean() < 2
    assert quality(one.quality)["changed: arrival spread inside its time bucket"][0] == 100
    # Draws belong to positions: what comes later in the file does not move what came before.
    part = trace.jittered(load_lines("mooncake_file", lines[:50], **options).trace, 0)
    np.testing.assert_array_equal(part.arrival_s, one.trace.arrival_s[:50])
    other = trace.jittered(loaded.trace, 1)
    assert (other.arrival_s[1:] != one.trace.arrival_s[1:]).all()
    assert trace.jittered(loaded.trace, 1).arrival_s.tobytes() == other.arrival_s.tobytes()


@pytest.mark.parametrize("spread", [False, True])
def test_a_file_is_read_alike_for_all_seeds(spread: bool) -> None:
    one, two = (_mooncake(spread_time_buckets=spread).load(seed, PLENTY).trace for seed in (0, 1))
    for name, array in to_arrays(one).items():
        np.testing.assert_array_equal(to_arrays(two)[name], array)
    assert one.arrival_s.tolist() == [0, 0, 3, 4.5, 6, 6]
    jittered = _mooncake(spread_time_buckets=spread).jittered(one, 1)
    assert (jittered.arrival_s.tolist() == one.arrival_s.tolist()) is not spread
    assert source("chat").jittered(one, 1) is one


def test_a_pause_is_not_taken_for_a_wide_bucket() -> None:
    lines = [_line(t, 5) for t in (0, 0, 3000, 3000, 6000, 6000, 600_000, 600_000, 603_000)]
    trace = source("mooncake_file").jittered(load_lines("mooncake_file", lines).trace, 0)
    assert trace.arrival_s[5] < 9
    assert trace.arrival_s[6] > 597 - 3


def test_one_time_for_all_has_no_width() -> None:
    loaded = load_lines("mooncake_file", [_line(7000, 5)] * 3)
    assert loaded.trace.arrival_s.tolist() == [0, 0, 0]
    assert source("mooncake_file").jittered(loaded.trace, 0) is loaded.trace
    assert not any(reason.startswith("changed") for reason in quality(loaded.quality))


def test_ids_that_differ_above_bit_32_stay_apart() -> None:
    ids = [5, 5 + 2**32, 5 + 2**33, 5 + 2**63, 2**64 - 1]
    loaded = load_lines("mooncake_file", [_line(0, 4, [i]) for i in ids] + [_line(0, 4, ids[:1])], **EXACT)
    check_trace(loaded)
    assert chains(loaded) == [[0], [1], [2], [3], [4], [0]]


def test_an_id_under_another_prefix_is_another_block() -> None:
    lines = [_line(0, 8, [1, 2]), _line(0, 8, [3, 2]), _line(0, 8, [1, 2]), _line(0, 8, [9, 9])]
    loaded = load_lines("mooncake_file", lines, **EXACT)
    check_trace(loaded)
    assert chains(loaded) == [[0, 1], [2, 3], [0, 1], [4, 5]]
    moved = quality(loaded.quality)["changed: block id met under another prefix, numbered as another block"]
    assert moved == (2, "[2, 4]")


def test_numbering_agrees_with_a_plain_dictionary() -> None:
    """Few ids under very many prefixes, so that equal ids meet under other parents."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 12, 3000)
    offset = np.concatenate([[0], np.cumsum(lengths)])
    ids = rng.integers(0, 6, offset[-1]).astype(np.uint64) << np.uint64(40)
    known: dict[tuple[int, int], int] = {}
    plain: dict[int, int] = {}
    expected, moved = [], set()
    for i, (start, end) in enumerate(pairwise(offset.tolist())):
        parent = -1
        for id_ in ids[start:end].tolist():
            parent = known.setdefault((parent, id_), len(known))
            expected.append(parent)
            if plain.setdefault(id_, parent) != parent:
                moved.add(i)
    numbers, changed = number_blocks(offset, ids)
    assert numbers.tolist() == expected
    assert set(changed.tolist()) == moved


def test_two_leading_ids_make_a_prefix_group() -> None:
    lines = [_line(0, 12, ids) for ids in ([1, 2, 3], [1, 4, 5], [1, 2, 6])] + [_line(0, 4, [1])]
    assert load_lines("mooncake_file", lines, **EXACT).trace.session_id.tolist() == [0, 1, 0, 2]


def test_a_trace_without_hashes_can_be_read_without_prefixes() -> None:
    line = b'{"timestamp": 0, "input_length": 10, "output_length": 5}\n'
    with pytest.raises(InputError, match=r"row 1: hash_ids: missing \(trace.has_hashes=false reads"):
        load_lines("mooncake_file", [line])
    loaded = load_lines("mooncake_file", [line, line], has_hashes=False)
    check_trace(loaded)
    assert not loaded.trace.has_prefixes
    assert loaded.trace.block_ids.size == 0
    assert loaded.trace.session_id.tolist() == [0, 1]


def test_azure_sample() -> None:
    loaded = source("azure_conversation", path=str(SAMPLES / "azure_small.csv")).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    assert trace.arrival_s.tolist() == [0, 1e-7, 86400]
    assert trace.input_tokens.tolist() == [374, 396, 100]
    assert trace.output_tokens.tolist() == [44, 1, 7]
    assert trace.session_id.tolist() == [0, 1, 2]
    assert not trace.has_prefixes
    assert quality(loaded.quality)["dropped: no output (failed request)"] == (1, "[4]")
    assert quality(loaded.quality)["read"] == (4, "[2, 3, 4, 5]")


def test_azure_times_of_2024_carry_a_zone() -> None:
    text = (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
        b"2024-05-10 00:00:00.009930+00:00,10,2\n"
        b"2024-05-10 02:00:01+02:00,11,2\n"
        b"2024-05-10T00:00:02Z,12,2\n"
    )
    assert load_lines("azure_conversation", text).trace.arrival_s.tolist() == [0, 0.99007, 1.99007]


COLUMNS = {
    "arrival_column": "sent_ms",
    "arrival_unit_s": 0.001,
    "input_column": "prompt",
    "output_column": "answer",
    "session_column": "user",
    "class_column": "kind",
}


def test_csv_sample_by_its_columns() -> None:
    loaded = source("csv_file", path=str(SAMPLES / "requests_small.csv"), **COLUMNS).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    assert trace.arrival_s.tolist() == [0, 0.5, 1.5005]
    assert trace.input_tokens.tolist() == [100, 50, 130]
    assert trace.session_id.tolist() == [0, 1, 0]
    assert trace.classes == ("chat", "code")
    assert trace.class_id.tolist() == [0, 1, 0]


def test_csv_dates_and_no_labels() -> None:
    text = b"arrival_s,input_tokens,output_tokens\n2026-01-01 00:00:00,1,1\n2026-01-01T00:01:00.5Z,2.0,1e1\n"
    trace = load_lines("csv_file", text, arrival_unit_s=None).trace
    assert trace.arrival_s.tolist() == [0, 60.5]
    assert trace.output_tokens.tolist() == [1, 10]
    assert trace.session_id.tolist() == [0, 1]
    assert trace.classes == ("csv_file",)


@pytest.mark.parametrize("suffix", [".gz", ".zst", ""])
@pytest.mark.parametrize("misnamed", [False, True])
def test_compressed_files_read_alike(tmp_path: Path, suffix: str, misnamed: bool) -> None:
    plain = (SAMPLES / "mooncake_small.jsonl").read_bytes()
    packed = plain if not suffix else pa.compress(plain, {".gz": "gzip", ".zst": "zstd"}[suffix], asbytes=True)
    path = tmp_path / ("trace.jsonl" if misnamed else f"trace.jsonl{suffix}")
    path.write_bytes(packed)
    loaded = _mooncake(path=str(path)).load(0, PLENTY)
    expected = _mooncake().load(0, PLENTY)
    np.testing.assert_array_equal(loaded.trace.block_ids, expected.trace.block_ids)
    assert quality(loaded.quality) == quality(expected.quality)


def test_joined_gzip_members_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    lines = [_line(i, 4, [i]) for i in range(4)]
    path.write_bytes(b"".join(map(gzip.compress, lines)))
    assert _mooncake(path=str(path)).load(0, PLENTY).trace.request_count == 4


def test_bom_crlf_and_blank_lines_change_nothing() -> None:
    lines = (SAMPLES / "mooncake_small.jsonl").read_bytes()
    windows = b"\xef\xbb\xbf" + lines.replace(b"\n", b"\r\n") + b"\r\n  \r\n"
    one, two = load_lines("mooncake_file", lines, **EXACT), load_lines("mooncake_file", windows, **EXACT)
    assert chains(one) == chains(two)
    assert quality(two.quality)["ignored: blank line"] == (3, "[3, 9, 10]")
    table = b'\xef\xbb\xbf"arrival_s", input_tokens ,output_tokens\r\n\r\n0,1,2\r\n'
    assert load_lines("csv_file", table).trace.output_tokens.tolist() == [2]


def test_the_same_file_gives_the_same_bytes() -> None:
    one, two = (_mooncake().load(5, PLENTY) for _ in range(2))
    assert one.trace.arrival_s.tobytes() == two.trace.arrival_s.tobytes()
    assert one.quality.equals(two.quality)


def _line(timestamp: int, inputs: int, ids: list[int] | None = None) -> bytes:
    record = {"timestamp": timestamp, "input_length": inputs, "output_length": 2, "hash_ids": ids or []}
    if ids is None:
        record["hash_ids"] = [inputs + 1000]
    return json.dumps(record).encode() + b"\n"


def test_dynamo_sessions_are_closed_loops_of_their_own() -> None:
    rows = [
        {"session_id": "a", "timestamp": 1000, "input_length": 4, "output_length": 2, "hash_ids": [1]},
        {"session_id": "a", "delay": 500, "input_length": 8, "output_length": 2, "hash_ids": [1, 2]},
        {"session_id": 7, "timestamp": 1200, "delay": 9, "input_length": 4, "output_length": 1, "hash_ids": [1]},
        {"session_id": "a", "timestamp": 4000, "delay": 250, "input_length": 8, "output_length": 1, "hash_ids": [1, 2]},
    ]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    trace = load_lines("mooncake_file", lines, block_tokens=4).trace
    assert trace.arrival_s.tolist() == pytest.approx([0, 0.2, 0.5, 3])
    assert trace.session_id.tolist() == [0, 1, 0, 0]
    assert trace.think_s[2:].tolist() == [0.5, 0.25]
    assert np.isnan(trace.think_s[:2]).all()
    with pytest.raises(InputError, match="row 1: timestamp: missing"):
        load_lines("mooncake_file", [lines[1]], block_tokens=4)


@pytest.mark.parametrize(("times", "spreads"), [([0, 0, 0, 3000, 3000], True), ([0, 1, 2, 2, 5], False)])
def test_coarse_times_are_spread_where_nothing_is_said(times: list[int], spreads: bool) -> None:
    lines = [
        json.dumps({"timestamp": t, "input_length": 4, "output_length": 1, "hash_ids": [1]}).encode() for t in times
    ]
    loaded = load_lines("mooncake_file", lines, block_tokens=4)
    changed = "changed: arrival spread inside its time bucket" in quality(loaded.quality)
    drawn = source("mooncake_file", block_tokens=4).jittered(loaded.trace, 3).arrival_s.tolist()
    assert (changed, drawn != loaded.trace.arrival_s.tolist()) == (spreads, spreads)


def test_what_changed_counts_only_among_what_is_kept() -> None:
    lines = [b'{"timestamp": %d, "input_length": 4, "output_length": 2, "hash_ids": [1]}\n' % t for t in (5, 0, 9, 7)]
    loaded = load_lines("mooncake_file", lines, block_tokens=4, max_requests=2)
    told = quality(loaded.quality)
    assert told["changed: earlier than a row before it, sorted by time"] == (1, "[2]")
    assert told["dropped: behind the window (max_requests)"] == (2, "[3, 4]")


def test_a_last_line_without_an_end_is_noted() -> None:
    text = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0,10,20\n2023-11-16 18:15:47.0,10,2"
    assert quality(load_lines("azure_file", text).quality)["noted: last line without a line end (cut off?)"] == (
        1,
        "[3]",
    )
    assert not [r for r in quality(load_lines("azure_file", text + b"\n").quality) if "line end" in r]
