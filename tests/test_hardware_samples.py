"""Measured samples from files: what is read, what is refused and where, and whole steps taken apart."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hardware_options import model_of, values_of

from pipeline.hardware.base import Calibration, calibrate
from pipeline.hardware.roofline import collective_s, decode_s, dense_s, logits_s, prefill_s
from pipeline.hardware.spec import Hardware
from pipeline.spec import InputError, build
from pipeline.values import EngineLimits

HEADER = (
    "hardware,model,tensor_parallel,operation,prefill_tokens,prefill_cached_tokens,decode_requests,"
    "decode_context_mean_tokens,decode_context_max_tokens,time_s,repeat_count"
)
WHO = "measured_samples,llama3_1_8b,1"
GOOD = [
    f"{WHO},dense,512,0,0,0,0,0.0101,5",
    f"{WHO},attention_prefill,512,1024,0,0,0,0.0007,5",
    f"{WHO},attention_decode,0,0,32,1000.5,2000,0.0009,5",
    f"{WHO},logits,0,0,32,0,0,0.0004,5",
]


MODEL = model_of("llama3_1_8b")
VALUES = values_of("hardware", "measured_samples")


def run(path: Path, ranks: int = 1, **source: object) -> Calibration:
    values = VALUES | {"source": VALUES["source"] | {"path": str(path)} | source}
    engine = EngineLimits(tensor_parallel=ranks, max_running=64, max_batched_tokens=2048)
    return calibrate(build(values, "hardware", Hardware), MODEL, engine)


def write(path: Path, rows: list[str], header: str = HEADER, end: str = "\n", start: str = "") -> Path:
    path.write_bytes((start + end.join([header, *rows]) + end).encode())
    return path


def test_rows_are_kept_as_measured(tmp_path: Path) -> None:
    found = run(write(tmp_path / "s.csv", GOOD))
    assert (found.source, found.is_calibrated) == ("measured", True)
    rows = found.step_samples.to_pylist()
    assert [row["operation"] for row in rows] == ["dense", "attention_prefill", "attention_decode", "logits"]
    assert rows[2] == {
        "hardware": "measured_samples", "model": "llama3_1_8b", "tensor_parallel": 1, "source": "measured",
        "operation": "attention_decode", "prefill_tokens": 0, "prefill_cached_tokens": 0, "decode_requests": 32,
        "decode_context_mean_tokens": 1000.5, "decode_context_max_tokens": 2000.0, "time_s": 0.0009, "repeat_count": 5,
    }  # fmt: skip


def test_byte_order_mark_and_dos_line_ends_are_read(tmp_path: Path) -> None:
    plain = run(write(tmp_path / "a.csv", GOOD)).step_samples
    assert run(write(tmp_path / "b.csv", GOOD, end="\r\n", start="\ufeff")).step_samples.equals(plain)


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    plain = run(write(tmp_path / "a.csv", GOOD)).step_samples
    pq.write_table(plain.drop_columns(["source"]), tmp_path / "s.parquet")
    assert run(tmp_path / "s.parquet").step_samples.equals(plain)


def test_rows_of_others_are_counted(tmp_path: Path) -> None:
    other = [row.replace("llama3_1_8b,1", "llama3_1_8b,2") for row in GOOD[:3]]
    found = run(write(tmp_path / "s.csv", GOOD + other))
    counts = {row["name"]: row["value"] for row in found.constants.to_pylist()}
    assert (counts["measured_sample_count"], counts["other_sample_count"]) == (4, 3)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"{WHO},dense,512,0,0,0,0,-0.01,5", "line 3, column time_s: given '-0.01', expected a number of 0 or more"),
        (f"{WHO},dense,512,0,0,0,0,nan,5", "line 3, column time_s: given 'nan', expected a number of 0 or more"),
        (f"{WHO},dense,512,0,0,0,0,,5", "line 3, column time_s: given '', expected a number"),
        (f"{WHO},dense,512,0,0,0,0,0,5", "line 3, column time_s: given 0.0, expected more than 0 s"),
        (f"{WHO},dense,many,0,0,0,0,0.01,5", "line 3, column prefill_tokens: given 'many', expected a number"),
        (f"{WHO},dense,5.5,0,0,0,0,0.01,5", "line 3, column prefill_tokens: given '5.5', expected a whole number"),
        (f"{WHO},gemm,512,0,0,0,0,0.01,5", "line 3, column operation: given 'gemm', expected one of dense, collective"),
        (f"{WHO},dense,0,0,0,0,0,0.01,5", "a row of dense needs prefill_tokens or decode_requests over 0"),
        (f"{WHO},attention_decode,16,0,4,10,10,0.01,5", "line 3, column prefill_tokens: given 16, expected 0 in a row"),
        (f"{WHO},attention_decode,0,0,4,0,0,0.01,5", "column decode_context_mean_tokens: given 0"),
        (f"{WHO},attention_decode,0,0,4,20,10,0.01,5", "column decode_context_max_tokens: given less than"),
        (f"{WHO},dense,512,0", "line 3: expected 11 values"),
        (f"{WHO},dense,512,0,0,0,0,0.01,5,7", "line 3: expected 11 values"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        run(write(tmp_path / "s.csv", [GOOD[0], row]))
    assert message in str(caught.value)
    assert "s.csv" in str(caught.value)


def test_a_bad_parquet_row_is_named(tmp_path: Path) -> None:
    table = run(write(tmp_path / "a.csv", GOOD)).step_samples
    broken = table.set_column(10, "time_s", pa.array([0.1, None, 0.1, 0.1]))
    pq.write_table(broken, tmp_path / "s.parquet")
    with pytest.raises(InputError, match="row 2, column time_s: given None, expected a number"):
        run(tmp_path / "s.parquet")


def test_files_that_are_no_good(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hardware.source.path: given .*nowhere.csv', but there is no such file"):
        run(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="no rows"):
        run(write(tmp_path / "empty.csv", []))
    (tmp_path / "nothing.csv").write_text("")
    with pytest.raises(InputError, match="missing column"):
        run(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match=r"missing column\(s\) time_s, unknown column\(s\) time_ms"):
        run(write(tmp_path / "renamed.csv", GOOD, header=HEADER.replace("time_s", "time_ms")))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        run(tmp_path / "binary.csv")
    (tmp_path / "text.parquet").write_text(HEADER)
    with pytest.raises(InputError, match="cannot be read as parquet"):
        run(tmp_path / "text.parquet")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="no rows of operation attention_decode; there are 1 attention_prefill, 1 dense"
    ):
        run(write(tmp_path / "s.csv", GOOD[:2]))
    with pytest.raises(InputError, match="no row of hardware measured_samples, model llama3_1_8b, tensor_parallel 2"):
        run(tmp_path / "s.csv", ranks=2)
    two = [row.replace("llama3_1_8b,1", "llama3_1_8b,2") for row in GOOD]
    with pytest.raises(InputError, match="no rows of operation collective"):
        run(write(tmp_path / "two.csv", two), ranks=2)
    assert run(tmp_path / "two.csv", ranks=2, collectives_in_dense=True).step_samples.num_rows == 4


def steps(ranks: int, with_prefill: bool) -> list[str]:
    """Whole steps of a machine that is exactly a multiple of its roofline in every operation."""
    hardware = build(VALUES | {"source": VALUES["source"] | {"path": "x"}}, "hardware", Hardware)
    engine = EngineLimits(tensor_parallel=ranks, max_running=64, max_batched_tokens=2048)
    rng = np.random.default_rng(1)
    new = rng.integers(1, 4000, 80) * (rng.random(80) < 0.7) * with_prefill
    cached = rng.integers(0, 30000, 80) * (new > 0)
    decodes = rng.integers(1, 60, 80)
    context = rng.integers(10, 3000, 80)
    time_s = 0.002 + 1.5 * dense_s(hardware, MODEL, engine, new + decodes)
    time_s += 1.5 * logits_s(hardware, MODEL, engine, decodes + (new > 0))
    time_s += np.where(new > 0, 3.0 * prefill_s(hardware, MODEL, engine, new, cached), 0)
    time_s += 2.0 * decode_s(hardware, MODEL, engine, decodes, context)
    if ranks > 1:
        time_s += 4.0 * collective_s(hardware, MODEL, engine, new + decodes)
    columns = zip(new, cached, decodes, context, time_s.tolist(), strict=True)
    who = f"measured_samples,llama3_1_8b,{ranks}"
    return [f"{who},step,{q},{k},{d},{c},{c},{t!r},1" for q, k, d, c, t in columns]


@pytest.mark.parametrize("ranks", [1, 2])
def test_whole_steps_are_taken_apart_exactly_where_they_can_be(tmp_path: Path, ranks: int) -> None:
    found = run(write(tmp_path / "s.csv", steps(ranks, with_prefill=True)), ranks=ranks)
    constants = {row["name"]: row["value"] for row in found.constants.to_pylist()}
    assert constants["step_decomposition_error_ratio"] < 1e-9
    hardware = build(VALUES | {"source": VALUES["source"] | {"path": "x"}}, "hardware", Hardware)
    engine = EngineLimits(tensor_parallel=ranks, max_running=64, max_batched_tokens=2048)
    tokens, none = np.array([512]), np.array([0])
    expected = {
        "dense": 0.002 + 1.5 * dense_s(hardware, MODEL, engine, tokens)[0],
        "attention_prefill": 3.0 * prefill_s(hardware, MODEL, engine, tokens, none)[0],
    }
    for operation, time_s in expected.items():
        (row,) = [
            r for r in found.step_samples.to_pylist()
            if (r["operation"], r["prefill_tokens"], r["prefill_cached_tokens"]) == (operation, 512, 0)
        ]  # fmt: skip
        assert row["time_s"] == pytest.approx(time_s, rel=1e-9)
        assert row["source"] == "measured"


def test_decode_steps_alone_cannot_be_taken_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"80 whole steps cannot be taken apart.*prefill chunks of different lengths"):
        run(write(tmp_path / "s.csv", steps(1, with_prefill=False)))
    with pytest.raises(InputError, match="3 whole steps cannot be taken apart"):
        run(write(tmp_path / "few.csv", steps(1, with_prefill=True)[:3]))


def test_steps_beside_operations_are_counted_as_unused(tmp_path: Path) -> None:
    found = run(write(tmp_path / "s.csv", GOOD + steps(1, with_prefill=True)[:7]))
    counts = {row["name"]: row["value"] for row in found.constants.to_pylist()}
    assert counts["unused_step_sample_count"] == 7
    assert found.step_samples.num_rows == 4
