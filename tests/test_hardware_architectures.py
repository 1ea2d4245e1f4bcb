"""Step times of other architectures than dense ones: rooflines by hand, kernel tables, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hardware_options import hardware_of, model_of, predictor_of
from serving_scenarios import Request, engine, names, option, scenario

from pipeline.hardware.base import calibrate, links_of
from pipeline.hardware.roofline import decode_s, dense_s, prefill_s
from pipeline.hardware.silicon import Silicon
from pipeline.placement.capacity import capacity_blocks
from pipeline.placement.tiers import Tiers
from pipeline.serving.simulate import simulate
from pipeline.spec import InputError
from pipeline.values import EngineLimits

FLOPS, BANDWIDTH = 9.89e14, 3.35e12
needs_tables = pytest.mark.skipif(not Silicon.available(), reason="kernel tables need Linux x86-64")


def limits(ranks: int) -> EngineLimits:
    return EngineLimits(tensor_parallel=ranks, max_running=64, max_batched_tokens=2048)


H100 = hardware_of("h100_sxm_datasheet")


def test_a_step_reads_the_experts_it_touches() -> None:
    """Two ranks: 48 layers of attention and routers; an expert is 3 x 2048 x 768 weights of 2 bytes in each."""
    rank_attention = 48 * 2048 * 128 * 2 * (32 + 4) / 2
    router, expert = 48 * 2048 * 128, 48 * 3 * 2048 * 768 / 2
    few, many = dense_s(H100, model_of("qwen3_30b_a3b"), limits(2), np.array([2, 16384]))
    touched = 128 * (1 - (120 / 128) ** 2)
    assert few == pytest.approx(2 * (rank_attention + router + touched * expert) / BANDWIDTH)
    assert many == pytest.approx(2 * (rank_attention + router + 8 * expert) * 16384 / FLOPS)


def test_experts_are_read_in_their_own_type() -> None:
    gpt = model_of("gpt_oss_20b")
    attention_and_routers = 24 * (2880 * 64 * 2 * (64 + 8) + 2880 * 32)
    (one,) = dense_s(H100, gpt, limits(1), np.array([1]))
    assert one == pytest.approx((2 * attention_and_routers + 4 * 24 * 3 * 2880 * 2880 * 17 / 32) / BANDWIDTH)


def test_every_rank_reads_the_whole_latent() -> None:
    deepseek = model_of("deepseek_v3")
    (one,) = decode_s(H100, deepseek, limits(8), np.array([1]), np.array([10_000]))
    assert one == pytest.approx(70_272 * 10_000 / BANDWIDTH)
    eight_bits = deepseek.model_copy(update={"kv_dtype": "fp8"})  # then 484 FLOPs a byte: above the ridge
    (alone,) = decode_s(H100, eight_bits, limits(1), np.array([1]), np.array([10_000]))
    assert alone == pytest.approx(61 * 2 * 128 * (576 + 512) * 10_000 / FLOPS)


def test_prefill_expands_cached_latents() -> None:
    flops = 61 * 128 * (2 * 512 * (128 + 128) * 4000 + 2 * (192 + 128) * 2000 * (4000 + 1000))
    (found,) = prefill_s(H100, model_of("deepseek_v3"), limits(8), np.array([2000]), np.array([4000]))
    assert found == pytest.approx(flops / 8 / FLOPS)


@pytest.mark.parametrize(("new", "cached"), [(100, 0), (100, 60), (2000, 0), (2000, 60), (2000, 5000), (1, 127)])
def test_sliding_layers_see_a_window(new: int, cached: int) -> None:
    """Against a sum over queries: the i-th sees cached + i tokens, or a window."""
    gpt = model_of("gpt_oss_20b")
    flop_bound = H100.model_copy(update={"hbm_bytes_per_s": H100.hbm_bytes_per_s.model_copy(update={"value": 1e30})})
    pairs = sum(min(cached + i + 0.5, 128) for i in range(new))
    (found,) = prefill_s(flop_bound, gpt, limits(1), np.array([new]), np.array([cached]))
    full = new * (cached + new / 2)
    assert found == pytest.approx(4 * 12 * 64 * 64 * (full + pairs) / FLOPS, rel=1e-3)


def test_prefill_reads_a_window_of_what_is_cached() -> None:
    (one,) = prefill_s(H100, model_of("gpt_oss_20b"), limits(1), np.array([1]), np.array([5000]))
    kv, queries = 2048 * (24 + 12 * 5000 + 12 * 128), 24 * 2 * 64 * 64 * 2
    assert one == pytest.approx((kv + queries) / BANDWIDTH)


def test_decode_reads_a_window_of_sliding_layers() -> None:
    short, long = decode_s(H100, model_of("gpt_oss_20b"), limits(1), np.array([10, 10]), np.array([100, 5000]))
    assert short == pytest.approx(10 * 49_152 * 100 / BANDWIDTH)
    assert long == pytest.approx(10 * 2048 * 12 * (5000 + 128) / BANDWIDTH)


def test_copied_kv_heads_are_read_on_every_rank() -> None:
    four, eight = (decode_s(H100, model_of("qwen3_30b_a3b"), limits(n), np.array([9]), np.array([999])) for n in (4, 8))
    assert four == eight == pytest.approx(9 * 999 * 24_576 / BANDWIDTH)


@needs_tables
@pytest.mark.parametrize(
    ("name", "packaged", "ranks"),
    [("qwen3_30b_a3b", "Qwen/Qwen3-30B-A3B", 2), ("gpt_oss_20b", "openai/gpt-oss-20b", 1)],
)
def test_our_shape_of_experts_gives_the_times_of_the_packages_own(name: str, packaged: str, ranks: int) -> None:
    from aiconfigurator_core.sdk import EngineHandle

    samples = calibrate(hardware_of("h100_sxm"), model_of(name), limits(ranks)).step_samples.to_pylist()
    handle = EngineHandle.compile(packaged, "h100_sxm", "vllm", tp_size=ranks, moe_tp_size=ranks)
    whole = handle.run_static_per_op(batch_size=1, isl=2048, osl=2)[0]
    ours = {
        row["operation"]: row["time_s"]
        for row in samples
        if (row["prefill_tokens"], row["prefill_cached_tokens"]) == (2048, 0)
    }
    assert sum(ours.values()) == pytest.approx(sum(value[1] for value in whole) / 1e3, rel=1e-9)
    moved = sum(value[1] for value in whole if "_dispatch" in value[0] or "_ar" in value[0])
    assert ours.get("collective", 0.0) == pytest.approx(moved / 1e3, rel=1e-9)
    cases = [row for row in samples if row["operation"] in ("attention_decode", "logits")][::300]
    for row in cases:
        suffix = "_attention" if row["operation"] == "attention_decode" else "_logits_gemm"
        count = len(handle.run_static_per_op(batch_size=1, isl=2, osl=2)[1])
        context = max(int(row["decode_context_mean_tokens"]), 1)
        answer = handle.evaluate_generation_ops(list(range(count)), batch_size=row["decode_requests"], s=context)
        expected_ms = sum(value[1] for value in answer if value[0].endswith(suffix))
        assert row["time_s"] == pytest.approx(expected_ms / 1e3, rel=1e-9)


@needs_tables
def test_what_kernel_tables_lack_is_refused_before_any_job() -> None:
    with pytest.raises(InputError, match=r"latent attention \(mla\) of model deepseek_v3; use .*=h100_sxm_data"):
        calibrate(hardware_of("h200_sxm"), model_of("deepseek_v3"), limits(8))
    with pytest.raises(ValueError, match="latent attention"):
        hardware_of("a40").source.check_model(model_of("deepseek_v3"))
    gpt = model_of("gpt_oss_20b")
    assert gpt.sliding is not None
    for other in ({"sliding": None}, {"sliding": gpt.sliding.model_copy(update={"window_tokens": 4096})}):
        with pytest.raises(ValueError, match="these sliding layers of model gpt_oss_20b"):
            hardware_of("h100_sxm").source.check_model(gpt.model_copy(update=other))
    hardware_of("h100_sxm").source.check_model(gpt)


NEW = [
    ("llama2_7b", "h100_sxm_datasheet", 1),
    ("deepseek_v3", "h200_sxm_datasheet", 8),
    ("qwen3_30b_a3b", "h100_sxm_datasheet", 8),
    ("mixtral_8x7b", "h100_sxm_datasheet", 2),
    ("gpt_oss_20b", "h100_sxm_datasheet", 1),
    ("gpt_oss_120b", "h100_sxm_datasheet", 2),
]


@pytest.mark.parametrize(("name", "hardware", "ranks"), NEW)
def test_every_architecture_is_calibrated_trained_and_simulated(name: str, hardware: str, ranks: int) -> None:
    shape, machine = model_of(name), hardware_of(hardware)
    runs = engine(tensor_parallel=ranks, max_running=16, max_batched_tokens=512)
    found = calibrate(machine, shape, EngineLimits(tensor_parallel=ranks, max_running=16, max_batched_tokens=512))
    trained = predictor_of("roofline").train(found.step_samples, shape, runs, 0)
    tiers = option("tiers", "hbm_dram", Tiers)
    blocks = capacity_blocks(tiers, runs, shape, machine.hbm_bytes.value, 8, 16)
    requests = [Request(0.1 * i, 1000, 8, names("a", 62)) for i in range(6)]
    built = scenario(
        requests, model=shape, engine=runs, step_table=trained.table, links=links_of(found.link_calibration),
        capacity_blocks=blocks.tolist(),
    )  # fmt: skip
    output = simulate(built)
    assert set(output.reject_reason.tolist()) == {""}
    assert np.all(output.last_token_s > output.first_token_s)
    assert 0 < output.makespan_s < 10
