"""Specs refuse what they should in one line; tables are written whole, typed and without stray nulls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline import metrics, tables
from pipeline.model import Model
from pipeline.parse import plan_of
from pipeline.schema import TABLES, TIMELINE
from pipeline.spec import InputError, build
from pipeline.values import Engine, Load, Slo

SLO = {"_target_": "pipeline.values.Slo", "name": "x", "ttft_ms": 100, "tpot_ms": 10}
LLAMA_70B = {
    "_target_": "pipeline.model.Model",
    "name": "m",
    "architecture": "LlamaForCausalLM",
    "hidden": 8192,
    "layers": 80,
    "heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 28672,
    "vocabulary": 128256,
    "max_context_tokens": 131072,
    "tied_embeddings": False,
    "dtype": "bfloat16",
    "kv_dtype": "bfloat16",
    "source": "test",
    "as_of": "2026",
}
ENGINE = {
    "_target_": "pipeline.values.Engine",
    "tensor_parallel": 1,
    "max_running": 8,
    "max_batched_tokens": 512,
    "memory_utilisation": 0.9,
    "activation_bytes": 0,
    "kv_budget_tokens": None,
    "prefix_cache": True,
    "async_scheduling": False,
    "block_tokens": 16,
    "kv_layout": "layers_together",
}


def test_build_makes_the_object() -> None:
    assert build(SLO, "slo", Slo).ttft_ms == 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ttft_ms": -1}, "slo.ttft_ms: given -1: Input should be greater than 0"),
        ({"ttft_ms": "fast"}, "slo.ttft_ms: given 'fast'"),
        ({"ttft_ms": True}, "slo.ttft_ms: given True: Input should be a valid number"),
        ({"ttft_ms": float("inf")}, "slo.ttft_ms: given inf: Input should be a finite number"),
        ({"ttft_ms": float("nan")}, "slo.ttft_ms: given nan: Input should be"),
        ({"ttfft_ms": 3}, "slo.ttfft_ms: unknown key; allowed: name, tpot_ms, ttft_ms"),
        ({"_target_": "os.system"}, "slo._target_: given 'os.system', expected a class inside the package"),
        ({"_target_": "pipeline.values.Nothing"}, "cannot be imported"),
        ({"_target_": "pipeline.values.TIERS"}, "expected a Spec class"),
    ],
)
def test_build_says_what_is_wrong_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build(SLO | change, "slo", Slo)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_build_refuses_another_kind() -> None:
    with pytest.raises(InputError, match="slo: given Slo, expected a kind of Load"):
        build(SLO, "slo", Load)


def test_model_arithmetic() -> None:
    model = build(LLAMA_70B, "model", Model)
    assert model.kv_bytes_per_token == 2 * 80 * 8 * 128 * 2
    assert 70e9 < model.parameters_count < 71e9


def test_tensor_parallel_must_divide_the_heads() -> None:
    model = build(LLAMA_70B, "model", Model)
    model.check_tensor_parallel(8)
    with pytest.raises(ValueError, match=r"given 3, but m has 64 heads and 8 KV heads; allowed: 1, 2, 4, 8"):
        model.check_tensor_parallel(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"kv_heads": 5},
            "model.kv_heads: given 5, but 64 heads share KV heads in equal groups; allowed: 1, 2, 4, 8, 16",
        ),
        ({"kv_heads": 128}, "model.kv_heads: given 128, but 64 heads share"),
        ({"layers": 1.5}, "model.layers: given 1.5: Input should be a valid integer"),
        ({"layers": "80"}, "model.layers: given '80': Input should be a valid integer"),
        ({"layers": 10**26}, "model.layers: given 100000000000000000000000000: Input should be less than"),
        ({"name": ""}, "model.name: given ''"),
    ],
)
def test_a_model_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build(LLAMA_70B | change, "model", Model)
    assert message in str(caught.value)


def test_a_budget_lies_beside_the_weights() -> None:
    """70,552,387,584 weights of 2 bytes on 2 x 80 GB leave 18,895,224,832 bytes: 57,663 tokens of 327,680 bytes."""
    model = build(LLAMA_70B, "model", Model)
    left = 57_663
    fits = build(ENGINE | {"tensor_parallel": 2, "kv_budget_tokens": left}, "engine", Engine)
    assert fits.kv_capacity_bytes(model, 80e9) == left * model.kv_bytes_per_token
    over = build(ENGINE | {"tensor_parallel": 2, "kv_budget_tokens": left + 1}, "engine", Engine)
    with pytest.raises(ValueError, match=rf"given {left + 1}, but .* 2 rank\(s\) hold at most {left} tokens"):
        over.kv_capacity_bytes(model, 80e9)
    with pytest.raises(ValueError, match="hold at most 0 tokens"):
        over.kv_capacity_bytes(model, 10e9)


def test_weights_that_do_not_fit_name_the_ranks_needed() -> None:
    model, engine = build(LLAMA_70B, "model", Model), build(ENGINE, "engine", Engine)
    with pytest.raises(ValueError, match=r"at least 2 rank\(s\) are needed"):
        engine.kv_capacity_bytes(model, 80 * 2**30)


def test_load_is_a_share_or_a_rate() -> None:
    with pytest.raises(InputError, match="exactly one"):
        both = {"share_of_capacity_ratio": 0.7, "rate_per_s": 1.0, "scale_by": "time"}
        build({"_target_": "pipeline.values.Load", **both}, "load", Load)


def _row() -> dict[str, object]:
    return {
        "cell_id": "c",
        "instance_id": 0,
        "start_s": 0.0,
        "length_s": 1.0,
        "queue_count": 0.0,
        "running_count": 1.0,
        "kv_used_ratio": 0.5,
        "tokens_per_s": 3.0,
    }


def test_tables_round_trip(tmp_path: Path) -> None:
    written = tables.write(tmp_path, TIMELINE, tables.from_rows(TIMELINE, [_row(), _row()]))
    assert tables.read(written).to_pylist() == [_row(), _row()]
    assert [p.name for p in tmp_path.iterdir()] == ["timeline.parquet"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queue_count": float("nan")}, "timeline, column queue_count: 1 null"),
        ({"cell_id": None}, "timeline, column cell_id: 1 null"),
        ({"instance_id": "zero"}, "timeline, column instance_id: expected int"),
        ({"surprise": 1}, "missing or unknown columns"),
    ],
)
def test_tables_refuse_wrong_rows(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tables.from_rows(TIMELINE, [_row() | change])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), tables.replacing(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected"):
        tables.write(tmp_path, TIMELINE, pa.table({"a": [1]}))


def test_every_table_documents_every_column() -> None:
    for table in TABLES.values():
        assert table.grain
        assert len(set(table.names())) == len(table.columns)
        assert all(column.meaning for column in table.columns)


def test_metrics_by_hand() -> None:
    arrival, first, last = np.array([0.0, 1.0]), np.array([0.5, 1.2]), np.array([2.5, 1.2])
    outputs = np.array([5, 1])
    ttft, tpot = metrics.ttft_ms(arrival, first), metrics.tpot_ms(first, last, outputs)
    assert ttft == pytest.approx([500, 200])
    assert tpot[0] == pytest.approx(500)
    assert np.isnan(tpot[1])
    assert metrics.meets_slo(ttft, tpot, 300, 1).tolist() == [False, True]
    assert metrics.meets_slo(np.array([np.nan]), np.array([np.nan]), 300, 1).tolist() == [False]
    assert metrics.slo_attainment_ratio(np.array([True, False])) == 0.5
    assert metrics.goodput_per_s(np.array([True, True, False]), 4.0) == 0.5


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tiers.dram_bytes=1e30", "tiers.dram_bytes: given 1e\\+30"),
        ("tiers=shape_1_8_64 tiers.shape=[1,8,1e20,0]", "tiers.shape: given"),
        ("load.share_of_capacity_ratio=70", "load.share_of_capacity_ratio: given 70"),
    ],
)
def test_a_slip_of_many_orders_is_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(Path(__file__).resolve().parents[1], {"study": "smoke", "set": setting})
