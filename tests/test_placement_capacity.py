"""What tiers hold in blocks, tokens and sessions, and which sizes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipeline.model import Model
from pipeline.placement.capacity import block_bytes, capacity_blocks, capacity_table, kv_words
from pipeline.placement.tiers import Tiers
from pipeline.spec import InputError, build
from pipeline.values import Engine

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
    halved = tiers_of("shape_1_8_64", shape=[2, 8, 64, 0], hbm_kv_bytes=10 * 16 * 131072.0)
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


def table_of(name: str, ranks: int, blocks: list[int], session_tokens: float = 1000.0) -> list[Any]:
    return capacity_table(np.array(blocks), model_of(name), 16, ranks, 8, session_tokens)


def test_copied_kv_heads_do_not_add_room() -> None:
    """Qwen3-30B-A3B has 4 KV heads: a rank of 4 or of 8 stores one, 24,576 bytes a token."""
    model = model_of("qwen3_30b_a3b")
    for ranks in (4, 8):
        left = 0.9 * 80 * GIB - model.rank_weight_bytes(ranks)
        found = blocks_of(tiers_of("hbm_dram"), engine_of(tensor_parallel=ranks), "qwen3_30b_a3b")
        assert found == [int(left / (16 * 24_576)), int(64e9 / (16 * 98_304)), 0, 0]
    hbm, dram, *_ = table_of("qwen3_30b_a3b", 8, [100, 100, 0, 0])
    assert hbm.capacity_bytes == dram.capacity_bytes == 100 * 16 * 98_304
    assert (hbm.rank_bytes, hbm.node_bytes) == (100 * 16 * 24_576, 8 * 100 * 16 * 24_576)  # each head is there twice
    assert (dram.rank_bytes, dram.node_bytes) == (100 * 16 * 98_304 / 8, 100 * 16 * 98_304)  # one copy


def test_a_latent_is_in_the_hbm_of_every_rank_and_once_below() -> None:
    model = model_of("deepseek_v3")
    left = 0.9 * 141e9 - 2e9 - model.rank_weight_bytes(8)
    engine = engine_of(tensor_parallel=8, activation_bytes=2e9)
    assert blocks_of(tiers_of("hbm_only"), engine, "deepseek_v3", 141e9)[0] == int(left / (16 * 70_272))
    assert block_bytes(model, 16) == 16 * 70_272
    hbm, dram, *_ = table_of("deepseek_v3", 8, [100, 100, 0, 0])
    assert (hbm.rank_bytes, hbm.node_bytes) == (100 * 16 * 70_272, 8 * 100 * 16 * 70_272)
    assert (dram.rank_bytes, dram.node_bytes) == (100 * 16 * 70_272 / 8, 100 * 16 * 70_272)


def test_a_budget_is_of_every_rank() -> None:
    engine = engine_of(tensor_parallel=8, kv_budget_tokens=1600)
    assert blocks_of(tiers_of("hbm_only"), engine, "qwen3_30b_a3b")[0] == 100
    most = int((141e9 - model_of("deepseek_v3").rank_weight_bytes(8)) / 70_272)
    with pytest.raises(InputError, match=rf"8 rank\(s\) hold at most {most} tokens"):
        blocks_of(tiers_of("hbm_only"), engine_of(tensor_parallel=8, kv_budget_tokens=most + 1), "deepseek_v3", 141e9)


def test_bytes_of_a_token_are_told_and_what_a_window_would_save() -> None:
    table = table_of("qwen3_30b_a3b", 8, [100, 0, 0, 0])
    assert kv_words(model_of("qwen3_30b_a3b"), engine_of(tensor_parallel=8), table[0], 1000.0) == [
        "KV of qwen3_30b_a3b in bfloat16: 98,304 bytes a token, 24,576 on each of 8 rank(s); the ranks' HBM holds 2 "
        "copies, the tiers below one"
    ]
    # 100 blocks of 16 tokens in 24 layers; a session of 8,000 keeps 8,000 in 12 and 128 in 12, a step 2,048 more.
    hbm = table_of("gpt_oss_20b", 1, [100, 0, 0, 0])[0]
    alone, hybrid = kv_words(model_of("gpt_oss_20b"), engine_of(), hbm, 8000.0)
    assert alone.endswith("49,152 on each of 1 rank(s)")
    rested, logged = 1600 * 24 * 8000 / (12 * 8128), 1600 * 24 * 131_072 / (12 * (131_072 + 2176))
    assert f"hbm would hold {rested:,.0f} tokens in such sessions, and vLLM log {logged:,.0f} (seq" in hybrid
    assert "12 of 24 layers keep 128 tokens; simulated is 1,600, all layers keep all" in hybrid


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
        (
            {"dram_bytes": 1000},
            r"tiers.dram_bytes: given 1000 bytes for an instance, .*16 tokens.*: 0 or at least 2.09715e\+06",
        ),
        ({"ssd_bytes": 1}, r"tiers.ssd_bytes: given 1 bytes for"),
        ({"hbm_kv_bytes": 1000}, r"tiers.hbm_kv_bytes: given 1000 bytes for an instance, .*; allowed: at least"),
        ({"hbm_kv_bytes": 1e15}, r"tiers.hbm_kv_bytes: given 1e\+15 bytes, but the engine leaves"),
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
        ({"dram_bytes": None}, "expected all three bytes, or blocks, or a shape"),
        ({"shape": [1, 8, 64, 0]}, "expected all three bytes, or blocks, or a shape"),
        ({"dram_byte": 1}, "tiers.dram_byte: unknown key; allowed: .*dram_bytes"),
    ],
)
def test_tiers_of_another_form_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        tiers_of("hbm_dram_ssd", **changes)


def test_a_shape_refuses_a_negative_ratio() -> None:
    with pytest.raises(InputError, match=r"tiers.shape.1: given -8"):
        tiers_of("shape_1_8_64", shape=[1, -8, 64, 0])
