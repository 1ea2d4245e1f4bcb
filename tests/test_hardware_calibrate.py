"""Calibration: roofline by hand, scaling, the links, what is refused, and kernel tables where they can be read."""

import copy
import logging

import numpy as np
import pyarrow.compute as pc
import pytest
from hardware_options import hardware_of, model_of, values_of

from pipeline.hardware.base import LinkConstants, calibrate, links_of
from pipeline.hardware.grid import sample_points
from pipeline.hardware.roofline import dense_s, prefill_s
from pipeline.hardware.silicon import Silicon
from pipeline.hardware.spec import Hardware
from pipeline.spec import InputError, build
from pipeline.values import EngineLimits

ENGINE = EngineLimits(tensor_parallel=1, max_running=64, max_batched_tokens=2048)
needs_tables = pytest.mark.skipif(not Silicon.available(), reason="kernel tables need Linux x86-64")


def times(samples, operation: str) -> np.ndarray:
    return samples.filter(pc.equal(samples["operation"], operation))["time_s"].to_numpy()


def test_shapes_shipped_have_the_published_parameter_counts() -> None:
    counts = {name: model_of(name).parameters_count for name in ("qwen2_5_3b", "llama3_1_8b", "llama3_1_70b")}
    assert counts["llama3_1_8b"] == pytest.approx(8.03e9, rel=1e-3)
    assert counts["llama3_1_70b"] == pytest.approx(70.55e9, rel=1e-3)
    assert counts["qwen2_5_3b"] == pytest.approx(3.086e9, rel=1e-3)
    assert model_of("llama3_1_8b").kv_bytes_per_token == 131072
    assert model_of("qwen2_5_3b").kv_bytes_per_token == 36864


def test_roofline_by_hand() -> None:
    h100, model = hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b")
    weights = 32 * (4096 * 128 * 2 * 40 + 3 * 4096 * 14336)
    one, many = dense_s(h100, model, ENGINE, np.array([1, 8192]))
    assert one == pytest.approx(2 * weights / 3.35e12)  # bytes bind: 2 per weight
    assert many == pytest.approx(2 * weights * 8192 / 9.89e14)  # FLOPs bind: 2 per weight and token
    assert prefill_s(h100, model, ENGINE, np.array([2048]), np.array([1000]))[0] == pytest.approx(
        4 * 32 * 32 * 128 * 2048 * (1000 + 1024) / 9.89e14
    )


def test_datasheet_is_marked_uncalibrated_and_reproducible() -> None:
    h100, model = hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b")
    first, second = calibrate(h100, model, ENGINE), calibrate(h100, model, ENGINE)
    assert (first.source, first.is_calibrated) == ("datasheet", False)
    assert first.step_samples.equals(second.step_samples)
    assert set(first.step_samples["source"].to_pylist()) == {"datasheet"}
    assert "collective" not in first.step_samples["operation"].to_pylist()


def test_ranks_divide_the_work_and_add_collectives() -> None:
    h100, model = hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b")
    two = ENGINE.model_copy(update={"tensor_parallel": 2})
    one_rank, two_ranks = calibrate(h100, model, ENGINE).step_samples, calibrate(h100, model, two).step_samples
    np.testing.assert_allclose(times(two_ranks, "dense"), times(one_rank, "dense") / 2)
    moved = 4096 * 2 * 2 * (2 - 1) / 2  # one token: hidden x 2 bytes, ring of 2
    assert times(two_ranks, "collective")[0] == pytest.approx(64 * (1e-5 + moved / 4.5e11))


def test_links_hold_every_pair_of_tiers() -> None:
    links = links_of(calibrate(hardware_of("h100_sxm_datasheet"), model_of("llama3_1_8b"), ENGINE).link_calibration)
    assert links[("hbm", "dram")] == links[("dram", "hbm")] == LinkConstants(5e10, 1e-5, 2.3e-6)
    assert links[("ssd", "dram")] == LinkConstants(7e9, 8e-5, 0.0)
    assert links[("dram", "ssd")].bandwidth_bytes_per_s == 5e9
    assert links[("hbm", "hbm")].bandwidth_bytes_per_s == 5e10


def test_scaling_keeps_the_efficiency_of_the_reference() -> None:
    """A reference at half the peaks and half the link: this hardware must take exactly half its time."""
    values = values_of("hardware", "h100_sxm_datasheet")
    slow = copy.deepcopy(values) | {"name": "slow"}
    for key in ("bf16_flops_per_s", "hbm_bytes_per_s"):
        slow[key]["value"] /= 2
    scaled = values | {"name": "scaled", "source": {"_target_": "pipeline.hardware.scaled.Scaled", "reference": slow}}
    model = model_of("llama3_1_8b")
    ours = calibrate(build(scaled, "hardware", Hardware), model, ENGINE)
    theirs = calibrate(build(slow, "hardware", Hardware), model, ENGINE)
    assert ours.source == "scaled"
    assert not ours.is_calibrated  # nothing measured behind it
    for operation in ("dense", "logits", "attention_prefill", "attention_decode"):
        np.testing.assert_allclose(times(ours.step_samples, operation), times(theirs.step_samples, operation) / 2)


@pytest.mark.parametrize(
    ("model", "ranks", "message"),
    [
        ("llama3_1_8b", 3, "given 3, but llama3_1_8b has 32 heads and 8 KV heads; allowed: 1, 2, 4, 8, 16, 32"),
        ("qwen2_5_3b", 32, "given 32, but qwen2_5_3b has 16 heads and 2 KV heads; allowed: 1, 2, 4, 8, 16"),
        ("llama3_1_70b", 1, "the weights of llama3_1_70b take 1.41e+11 bytes and 1 x h100_sxm_datasheet hold 8.59e+10"),
    ],
)
def test_ranks_that_cannot_serve_are_refused(model: str, ranks: int, message: str) -> None:
    engine = ENGINE.model_copy(update={"tensor_parallel": ranks})
    with pytest.raises(InputError, match="tensor_parallel") as caught:
        calibrate(hardware_of("h100_sxm_datasheet"), model_of(model), engine)
    assert message in str(caught.value)


def test_more_ranks_than_gpus_in_a_node_are_refused() -> None:
    small = hardware_of("h100_sxm_datasheet").model_copy(update={"gpus_per_node": 2})
    with pytest.raises(InputError, match="given 4, but a node of h100_sxm_datasheet has 2 GPUs"):
        calibrate(small, model_of("llama3_1_70b"), ENGINE.model_copy(update={"tensor_parallel": 4}))


def test_points_stay_within_engine_and_tables() -> None:
    model = model_of("llama3_1_8b")
    points = sample_points(model, ENGINE, kv_tokens=100_000, most_tokens=16384, most_context=16384)
    assert points.tokens.max() == 2048 + 64
    assert points.prefill_new.max() == 2048
    assert (points.prefill_new + points.prefill_cached).max() == 16384
    assert points.decode_requests.max() == 64
    assert (points.decode_requests * points.decode_context).max() <= 100_000
    pairs = set(zip(points.prefill_new.tolist(), points.prefill_cached.tolist(), strict=True))
    assert len(pairs) == len(points.prefill_new)
    assert (1, 0) in pairs


def test_an_engine_of_one_request_still_has_curves() -> None:
    engine = EngineLimits(tensor_parallel=1, max_running=1, max_batched_tokens=1)
    points = sample_points(model_of("llama3_1_8b"), engine, kv_tokens=10, most_tokens=16384, most_context=16384)
    assert all(len(column) >= 60 for column in points)
    assert points.decode_requests.max() == 1


@needs_tables
@pytest.mark.parametrize(
    ("model", "packaged", "ranks"),
    [("llama3_1_8b", "meta-llama/Meta-Llama-3.1-8B", 1), ("llama3_1_70b", "meta-llama/Meta-Llama-3.1-70B", 4)],
)
def test_our_shape_gives_the_times_of_the_packages_own(model: str, packaged: str, ranks: int) -> None:
    from aiconfigurator_core.sdk import EngineHandle

    engine = ENGINE.model_copy(update={"tensor_parallel": ranks})
    samples = calibrate(hardware_of("h100_sxm"), model_of(model), engine).step_samples.to_pylist()
    handle = EngineHandle.compile(packaged, "h100_sxm", "vllm", tp_size=ranks)
    cases = [row for row in samples if row["operation"] in ("attention_prefill", "attention_decode")][::500]
    for row in cases:
        q, k = row["prefill_tokens"], row["prefill_cached_tokens"]
        if q:
            answer = handle.run_static_per_op(batch_size=1, isl=q + k, osl=2, prefix=k)[0]
        else:
            context = int(row["decode_context_mean_tokens"])
            answer = handle.evaluate_generation_ops(list(range(14)), batch_size=row["decode_requests"], s=context)
        (expected_ms,) = [value[1] for value in answer if value[0].endswith("_attention")]
        assert row["time_s"] == pytest.approx(expected_ms / 1e3, rel=1e-12)
    whole = handle.run_static_per_op(batch_size=1, isl=2048, osl=2)[0]
    parts = {
        row["operation"]: row["time_s"]
        for row in samples
        if (row["prefill_tokens"], row["prefill_cached_tokens"]) == (2048, 0)
    }
    logits = next(row["time_s"] for row in samples if row["operation"] == "logits" and row["decode_requests"] == 1)
    assert sum(parts.values()) + logits == pytest.approx(sum(value[1] for value in whole) / 1e3, rel=1e-12)


@needs_tables
def test_kernel_tables_are_labelled_and_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("aiconfigurator_core").setLevel(logging.NOTSET)
    found = calibrate(hardware_of("l40s"), model_of("qwen2_5_3b"), ENGINE)
    assert (found.source, found.is_calibrated) == ("silicon_interpolated", True)
    assert set(found.step_samples["repeat_count"].to_pylist()) == {0}
    (row,) = [r for r in found.constants.to_pylist() if r["name"] == "silicon_sample_count"]
    assert row["value"] == found.step_samples.num_rows
    assert "l40s, vllm 0.24.0" in row["source"]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


@needs_tables
def test_a40_is_scaled_from_the_l40s() -> None:
    a40, l40s = hardware_of("a40"), hardware_of("l40s")
    model = model_of("qwen2_5_3b")
    ours, theirs = calibrate(a40, model, ENGINE), calibrate(l40s, model, ENGINE)
    assert (ours.source, ours.is_calibrated) == ("scaled", True)
    one, many = (times(c.step_samples, "dense")[[0, -1]] for c in (ours, theirs))
    np.testing.assert_allclose(one / many, [864 / 696, 362.05 / 149.7])  # bandwidth binds one token, FLOPs many
    assert any("from l40s" in row["source"] for row in ours.constants.to_pylist())


@needs_tables
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "fp8"}, "no answer for model llama3_1_8b (fp8, KV bfloat16), tensor_parallel 1 on a100_sxm"),
        ({"dtype": "int4"}, "no answer for model llama3_1_8b (int4"),
        ({"kv_dtype": "int4"}, "model.kv_dtype: given 'int4', but aiconfigurator-core has bfloat16, float16, fp8"),
        ({"architecture": "FooForCausalLM"}, "architecture FooForCausalLM is not supported"),
    ],
)
def test_what_the_tables_lack_is_said(changes: dict, message: str) -> None:
    model = model_of("llama3_1_8b").model_copy(update=changes)
    with pytest.raises(InputError) as caught:
        calibrate(hardware_of("a100_sxm"), model, ENGINE)
    assert message in str(caught.value)


@needs_tables
def test_unknown_system_names_the_known_ones() -> None:
    values = values_of("hardware", "h100_sxm")
    values["source"]["system"] = "h100"
    with pytest.raises(InputError, match="given 'h100', expected one of a100_pcie, a100_sxm"):
        calibrate(build(values, "hardware", Hardware), model_of("llama3_1_8b"), ENGINE)


def test_elsewhere_than_linux_x86_64_the_datasheet_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert not Silicon.available()
    for name in ("h100_sxm", "a40"):
        hardware = hardware_of(name)
        assert not hardware.source.runs_here()
        with pytest.raises(InputError, match=r"Linux x86-64 only.*datasheet"):
            calibrate(hardware, model_of("qwen2_5_3b"), ENGINE)
    assert hardware_of("h100_sxm_datasheet").source.runs_here()
