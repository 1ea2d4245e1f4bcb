"""What tiers hold in blocks, tokens and sessions, and which sizes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.placement.capacity import capacity_blocks, capacity_table
from pipeline.placement.tiers import Tiers
from pipeline.spec import InputError, build
from pipeline.values import Engine, Model

CONF = Path(__file__).resolve().parents[1] / "conf"
GIB = float(1 << 30)


def model_of(name: str) -> Model:
    return build(yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text()), "model", Model)


def tiers_of(name: str, **changes: Any) -> Tiers:
    values = yaml.safe_load((CONF / "tiers" / f"{name}.yaml").read_text())
    return build({**values, **changes}, "tiers", Tiers)


def engine_of(**changes: Any) -> Engine:
    values = {
        "tensor_parallel": 1,
        "max_running": 256,
        "max_batched_tokens": 2048,
        "memory_utilisation": 0.9,
        "activation_bytes": 0.0,
        "prefix_cache": True,
        "async_scheduling": False,
        "block_tokens": 16,
        "kv_layout": "layers_together",
    }
    return Engine(**{**values, **changes})


def blocks_of(tiers: Tiers, engine: Engine, model: str = "llama3_1_8b", hbm_bytes: float = 80 * GIB) -> list[int]:
    return capacity_blocks(tiers, engine, model_of(model), hbm_bytes, 8, 16).tolist()


def test_llama_8b_takes_131072_bytes_a_token() -> None:
    # 2 (K and V) x 32 layers x 8 KV heads x 128 x 2 bytes
    assert model_of("llama3_1_8b").kv_bytes_per_token == 131072
    # 64e9 / (16 x 131072) = 30517.6; 1e12 / (16 x 131072) = 476837.2
    engine = engine_of(kv_budget_tokens=60_000)
    assert blocks_of(tiers_of("hbm_only"), engine) == [3750, 0, 0, 0]
    assert blocks_of(tiers_of("hbm_dram"), engine) == [3750, 30517, 0, 0]
    assert blocks_of(tiers_of("hbm_dram_ssd"), engine) == [3750, 30517, 476837, 0]


def test_hbm_holds_what_weights_and_activations_leave() -> None:
    model = model_of("llama3_1_8b")
    left = 0.9 * 80 * GIB - 2 * GIB - model.weight_bytes
    found = blocks_of(tiers_of("hbm_only"), engine_of(activation_bytes=2 * GIB))
    assert found[0] == int(left / (16 * 131072))


def test_a_shape_is_in_units_of_hbm() -> None:
    assert blocks_of(tiers_of("shape_1_8_64"), engine_of(kv_budget_tokens=73 * 16)) == [73, 8 * 73, 64 * 73, 0]
    halved = tiers_of("shape_1_8_64", shape=[2, 8, 64], hbm_kv_bytes=10 * 16 * 131072.0)
    assert blocks_of(halved, engine_of()) == [10, 40, 320, 0]


def test_bytes_and_sessions_per_rank_and_per_node() -> None:
    # Two ranks share the heads of every block: a rank keeps half the bytes of the instance, a node has four instances.
    table = capacity_table(
        capacity_blocks(tiers_of("hbm_dram"), engine_of(tensor_parallel=2), model_of("llama3_1_8b"), 80 * GIB, 8, 16),
        model_of("llama3_1_8b"),
        block_tokens=16,
        tensor_parallel=2,
        gpus_per_node=8,
        session_tokens=8000.0,
    )
    dram = table[1]
    assert [row.tier for row in table] == ["hbm", "dram", "ssd", "remote"]
    assert (dram.block_count, dram.tokens) == (30517, 488272)
    assert dram.session_count == pytest.approx(61.034)
    assert dram.capacity_bytes == 30517 * 2097152
    assert dram.rank_bytes == dram.capacity_bytes / 2
    assert dram.node_bytes == dram.capacity_bytes * 4


def test_a_node_holds_whole_instances() -> None:
    blocks = capacity_blocks(tiers_of("hbm_dram"), engine_of(), model_of("llama3_1_8b"), 80 * GIB, 8, 16)
    table = capacity_table(blocks, model_of("llama3_1_8b"), 16, tensor_parallel=3, gpus_per_node=8, session_tokens=1.0)
    assert table[1].node_bytes == table[1].capacity_bytes * 2


def test_an_instance_that_spans_nodes_takes_its_share_of_one() -> None:
    table = capacity_table(
        capacity_blocks(tiers_of("hbm_dram"), engine_of(tensor_parallel=8), model_of("llama3_1_70b"), 80 * GIB, 8, 16),
        model_of("llama3_1_70b"),
        block_tokens=16,
        tensor_parallel=8,
        gpus_per_node=4,
        session_tokens=8000.0,
    )
    assert table[1].node_bytes == table[1].capacity_bytes / 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dram_bytes": 1000}, r"tiers.dram_bytes: given 1000 bytes, .*16 tokens.*: 0 or at least 2.09715e\+06"),
        ({"ssd_bytes": 1}, r"tiers.ssd_bytes: given 1 bytes"),
        ({"hbm_kv_bytes": 1000}, r"tiers.hbm_kv_bytes: given 1000 bytes, .*; allowed: at least"),
        ({"hbm_kv_bytes": 1e15}, r"tiers.hbm_kv_bytes: given 1e\+15, but the engine leaves"),
    ],
)
def test_a_tier_that_holds_no_block_or_too_much_is_refused(changes: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        blocks_of(tiers_of("hbm_dram_ssd", **changes), engine_of())


def test_weights_that_do_not_fit_are_refused_with_the_ranks_needed() -> None:
    with pytest.raises(InputError, match="at least 2 rank"):
        blocks_of(tiers_of("hbm_only"), engine_of(), model="llama3_1_70b")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dram_bytes": -1.0}, r"tiers.dram_bytes: given -1.0: .*greater than or equal to 0"),
        ({"dram_bytes": None}, "expected either both bytes and shape null, or a shape"),
        ({"shape": [1, 8, 64]}, "expected either both bytes and shape null, or a shape"),
        ({"dram_byte": 1}, "tiers.dram_byte: unknown key; allowed: dram_bytes"),
    ],
)
def test_tiers_of_another_form_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        tiers_of("hbm_dram_ssd", **changes)


def test_a_shape_refuses_a_negative_ratio() -> None:
    with pytest.raises(InputError, match=r"tiers.shape.1: given -8"):
        tiers_of("shape_1_8_64", shape=[1, -8, 64])
