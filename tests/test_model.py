"""Shapes of models against published figures: weights, KV bytes per token, on a rank and in a window."""

from __future__ import annotations

from typing import Any

import pytest
from hardware_options import model_of, values_of

from pipeline.model import Model, Moe
from pipeline.spec import InputError, build
from pipeline.values import Engine

GIB = 2**30


def model(option: str, **changes: Any) -> Model:
    return build(values_of("model", option) | changes, "model", Model)


@pytest.mark.parametrize(
    ("option", "total", "active", "with_input_embedding"),
    [
        ("llama2_7b", 6_738_415_616, None, False),  # count of the released weights
        ("deepseek_v3", 671e9, 36.6e9, False),  # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: the output head counts
        ("qwen3_30b_a3b", 30.5e9, 3.3e9, True),  # model card
        ("mixtral_8x7b", 46.7e9, 12.9e9, True),  # Mistral AI, "Mixtral of experts", 2023-12
        ("gpt_oss_20b", 20.91e9, 3.61e9, False),  # model card (arXiv:2508.10925), table 1
        ("gpt_oss_120b", 116.83e9, 5.13e9, False),
    ],
)
def test_parameters_are_those_published(
    option: str, total: float, active: float | None, with_input_embedding: bool
) -> None:
    shape = model_of(option)
    assert shape.parameters_count == pytest.approx(total, rel=0.002)
    if active is not None:
        embedding = shape.vocabulary * shape.hidden * with_input_embedding
        assert shape.active_parameters_count + embedding == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize(("option", "gib"), [("gpt_oss_20b", 12.8), ("gpt_oss_120b", 60.8)])
def test_checkpoints_with_experts_in_mxfp4_have_the_published_size(option: str, gib: float) -> None:
    assert model_of(option).weight_bytes == pytest.approx(gib * GIB, rel=0.005)  # model card, table 1


@pytest.mark.parametrize(
    ("option", "kv_bytes"),
    [
        ("llama2_7b", 2 * 32 * 32 * 128 * 2),  # every head has keys and values
        ("llama3_1_8b", 131_072),
        ("deepseek_v3", 70_272),  # arXiv:2505.09343, table 1: 70.272 KB
        ("qwen3_30b_a3b", 2 * 48 * 4 * 128 * 2),
        ("gpt_oss_120b", 2 * 36 * 8 * 64 * 2),
    ],
)
def test_kv_bytes_per_token(option: str, kv_bytes: int) -> None:
    assert model_of(option).kv_bytes_per_token == kv_bytes
    assert model(option, kv_dtype="fp8").kv_bytes_per_token * 2 == kv_bytes
    assert model(option, kv_dtype="int4").kv_bytes_per_token * 4 == kv_bytes


def test_published_kv_of_other_shapes() -> None:
    """arXiv:2505.09343, table 1: Qwen2.5 72B 327.680 KB, Llama 3.1 405B 516.096 KB."""
    assert model("llama3_1_8b", layers=80).kv_bytes_per_token == 327_680
    assert model("llama3_1_8b", layers=126).kv_bytes_per_token == 516_096


def test_kv_heads_are_divided_then_copied() -> None:
    qwen = model_of("qwen3_30b_a3b")  # 4 KV heads: 24,576 bytes a token each
    found = {n: (qwen.kv_rank_bytes_per_token(n), qwen.kv_rank_share(n)) for n in (1, 2, 4, 8, 32)}
    assert found == {1: (98304, 1), 2: (49152, 0.5), 4: (24576, 0.25), 8: (24576, 0.25), 32: (24576, 0.25)}


def test_a_latent_is_whole_on_each_rank() -> None:
    deepseek = model_of("deepseek_v3")
    assert {deepseek.kv_rank_bytes_per_token(n) for n in (1, 8, 128)} == {70_272}
    assert deepseek.kv_rank_share(8) == 1


def test_ranks_allowed_are_those_of_vllm() -> None:
    shape = model("llama3_1_8b", heads=24, kv_heads=6)
    assert shape.tensor_parallel_sizes == [1, 2, 3, 6, 12, 24]  # 4 and 8 neither divide 6 nor are multiples of it
    with pytest.raises(ValueError, match="given 4, but llama3_1_8b has 24 heads and 6 KV heads; allowed: 1, 2, 3, 6,"):
        shape.check_tensor_parallel(4)
    assert model_of("deepseek_v3").tensor_parallel_sizes[-1] == 128


def test_weights_of_a_rank() -> None:
    llama = model_of("llama3_1_8b")
    assert llama.rank_weight_bytes(8) * 8 == llama.weight_bytes
    copied = 32 * 2 * 4096 * 128 * 8 * 2  # bytes of all keys' and values' projections: twice there on 16 ranks
    assert llama.rank_weight_bytes(16) * 16 == llama.weight_bytes + copied
    deepseek = model_of("deepseek_v3")
    whole = 61 * 7168 * (1536 + 512 + 64) + 58 * 7168 * 256  # projections into latents, routers; one byte each
    assert deepseek.rank_weight_bytes(8) * 8 == pytest.approx(deepseek.weight_bytes + 7 * whole, rel=1e-12)


def test_a_request_keeps_a_window_of_sliding_layers() -> None:
    gpt = model_of("gpt_oss_20b")  # 12 of 24 layers keep 128 tokens; 2,048 bytes a token and layer
    assert gpt.kv_bytes(100) == 100 * gpt.kv_bytes_per_token
    assert gpt.kv_bytes(1000) == 2048 * 12 * (1000 + 128)
    assert gpt.kv_bytes(1000, step_tokens=512) == 2048 * 12 * (1000 + 640)
    assert model_of("llama3_1_8b").kv_bytes(1000, step_tokens=512) == 131_072_000


def test_the_hybrid_manager_gains_what_vllm_printed() -> None:
    """gpt-oss-120b, vLLM 0.22.1, sequences of 131,072, steps of 8,192: 25,798,626 tokens fit, 13,724,416 without it.

    Both are in the start-up logs of a public repository's runs on eight H200, with and without LMCacheConnectorV1.
    """
    gpt, longest = model_of("gpt_oss_120b"), 131_072
    gain = longest * gpt.kv_bytes_per_token / gpt.kv_bytes(longest, step_tokens=8192)
    assert gain == pytest.approx(25_798_626 / 13_724_416, rel=1e-3)


def test_experts_that_a_batch_touches() -> None:
    moe = Moe(experts=4, experts_per_token=1, ffn=1, shared_experts=0, dense_layers=0, dtype=None)
    assert [float(moe.touched_experts(n)) for n in (0, 1, 2)] == [0, 1, 4 * (1 - 9 / 16)]
    every = moe.model_copy(update={"experts_per_token": 4})
    assert float(every.touched_experts(1)) == 4


def test_pieces_of_a_block() -> None:
    engine = Engine(
        tensor_parallel=1, max_running=8, max_batched_tokens=512, memory_utilisation=0.9, activation_bytes=0.0,
        prefix_cache=True, async_scheduling=False, block_tokens=16, kv_layout="layers_apart",
    )  # fmt: skip
    assert engine.kv_pieces(model_of("llama3_1_8b"), 32) == 2 * 2 * 32
    assert engine.kv_pieces(model_of("deepseek_v3"), 32) == 2 * 61


@pytest.mark.parametrize(
    ("option", "change", "message"),
    [
        ("deepseek_v3", {"kv_heads": 64}, "model.kv_heads: given 64, expected 128"),
        ("gpt_oss_20b", {"layers": 11}, "model.sliding.layers: given 12, expected at most 11"),
        ("deepseek_v3", {"layers": 3}, "model.moe.dense_layers: given 3, expected under 3"),
        ("qwen3_30b_a3b", {"kv_dtype": "mxfp4"}, "model.kv_dtype: given 'mxfp4'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(option: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        model(option, **change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experts_per_token": 300}, "model.moe.experts_per_token: given 300, expected at most 128"),
        ({"expert": 3}, "model.moe.expert: unknown key; allowed: dense_layers, dtype, experts"),
        ({"experts": 0}, "model.moe.experts: given 0: Input should be greater than 0"),
    ],
)
def test_experts_that_cannot_be(change: dict[str, Any], message: str) -> None:
    values = values_of("model", "qwen3_30b_a3b")
    with pytest.raises(InputError) as caught:
        build(values | {"moe": values["moe"] | change}, "model", Model)
    assert message in str(caught.value)
