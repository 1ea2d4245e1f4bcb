"""Replays of measured runs: what they share, how errors are counted, and how far the simulation is from real runs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from fidelity_cases import HEADER, ROW, experts_case, moe_shape, put, shape, write_case
from hardware_options import predictor_of
from kernel_profiles import CORRECTIONS, INTERPOLATION

from pipeline.fidelity.case import RunRequests, Times, read_case
from pipeline.fidelity.derived import all_reduce_table, exchange_tables, experts_table
from pipeline.fidelity.errors import errors, held_out_errors, mean_absolute_error_ratio, statistics
from pipeline.fidelity.replay import replay, trace_of
from pipeline.fidelity.runs import Runs
from pipeline.spec import InputError

RUNS = Runs(
    cases=None,
    systems={"made up": "rtx_pro_6000_server"},
    prefill_step_s_per_layer={},
    skew_forest=CORRECTIONS.skew_forest,
    saved_share_ratio=CORRECTIONS.saved_share_ratio,
)


def test_times_count_from_the_boundary_at_which_the_engine_took_the_request(tmp_path):
    rows = "0,64,3,0.0,-1,0,0,0,0,0.1,0.2\n1,64,1,0.01,-1,0,0,0.065,0,0.2,0.2\n"
    case = read_case(write_case(tmp_path / "case", HEADER + rows))
    # 65 ms of prompt, then two tokens of 2 ms; one place: the second starts when all is over.
    found = replay(case, RUNS, INTERPOLATION, 0).times
    np.testing.assert_allclose(found.taken_s, [0.0, 0.065], atol=1e-9)
    np.testing.assert_allclose(found.first_token_s, [0.065, 0.069 + 0.065], atol=1e-9)
    table = errors(case, found, "interpolation").to_pylist()
    assert [row["metric"] for row in table[:3]] == ["TTFT mean", "TTFT median", "TTFT P90"]
    assert table[0]["measured"] == pytest.approx((100 + 135) / 2)
    assert table[0]["simulated"] == pytest.approx((65 + 69) / 2)
    assert table[0]["error_ratio"] == pytest.approx(67 / 117.5 - 1)
    assert table[0]["peer_error_ratio"] is None
    assert len(table) == 15
    assert {row["predictor"] for row in table} == {"interpolation"}


def test_a_prompt_shares_the_blocks_of_its_parent_and_no_others():
    requests = RunRequests(
        np.zeros(3), np.array([33, 40, 50]), np.array([16, 1, 1]), np.array([-1, 0, 1]), np.array([0, 2, 1])
    )
    trace = trace_of("made up", requests, 16)
    chains = [trace.block_ids[a:b].tolist() for a, b in pairwise(trace.block_offset)]
    # 33 + 16 tokens leave KV of 48: three full blocks; 40 of 40: two, both shared; 50: three, the first shared.
    assert chains == [[0, 1, 2], [0, 1], [0, 3, 4]]


def test_a_request_of_one_token_has_no_tpot():
    times = Times(np.zeros(2), np.array([1.0, 1.0]), np.array([1.0, 3.0]))
    found = statistics(times, np.array([1, 5]))
    assert (found["TTFT mean"], found["TPOT mean"], found["E2E mean"]) == (1000.0, 500.0, 2000.0)
    assert found["E2E P90"] == pytest.approx(2800.0)


def test_two_ranks_add_two_all_reduces_a_layer_measured_elsewhere(tmp_path):
    one = replay(read_case(write_case(tmp_path / "one", HEADER + ROW)), RUNS, INTERPOLATION, 0)
    case = read_case(write_case(tmp_path / "two", HEADER + ROW, tensor_parallel=2, model_shape=shape(kv_heads=2)))
    two = replay(case, RUNS, INTERPOLATION, 0)
    assert (one.derived, len(two.derived)) == ((), 1)
    # 64 tokens of 8 elements, beyond the CUDA graphs of one request: 512 elements, measured, eagerly.
    added_s = 2 * all_reduce_table("rtx_pro_6000_server", "0.19.0", 2, 8, 2, 64)[0][-1, 1]
    assert two.times.first_token_s[0] - one.times.first_token_s[0] == pytest.approx(added_s)
    assert "all-reduce" in errors(case, two.times, "interpolation", two.derived)["source"][0].as_py()
    with pytest.raises(InputError, match=r"fidelity\.systems: no entry for 'made up'"):
        replay(case, RUNS.model_copy(update={"systems": {}}), INTERPOLATION, 0)


def test_data_parallel_engines_share_the_requests(tmp_path):
    rows = ROW + ROW.replace("0,64", "1,64", 1)
    case = read_case(write_case(tmp_path / "case", HEADER + rows, data_parallel=2))
    np.testing.assert_allclose(replay(case, RUNS, INTERPOLATION, 0).times.first_token_s, 0.065, atol=1e-9)


def test_more_tokens_use_more_experts():
    rows = np.array([[t, e, 1.0 * t + 10.0 * e] for t in (1, 2, 8) for e in (1, 2, 4)])
    table = experts_table(rows, 4, 2, 8)
    # One token uses 2 of 4 experts; two use 4 (1 - 1/4) = 3.
    np.testing.assert_allclose(table[:2], [[1, 21], [2, 32]])


def test_a_model_of_experts_takes_them_for_its_dense_layers(tmp_path):
    folder = experts_case(tmp_path / "case")
    found = replay(read_case(folder), RUNS, INTERPOLATION, 0)
    np.testing.assert_allclose(found.times.first_token_s, [0.065 + 0.005], atol=1e-9)
    assert found.derived == ("experts in use (as of uniformly routed tokens)",)


def test_the_hardware_of_a_run_says_how_much_longer_its_prefill_steps_take():
    longer = {"theirs": {"value": 2e-6, "source": "us", "as_of": "now"}}
    runs = Runs(**{**RUNS.model_dump(), "prefill_step_s_per_layer": longer})
    assert runs.corrections("theirs", 3) == CORRECTIONS.model_copy(update={"prefill_step_s": 6e-6})
    assert runs.corrections("another", 3) == CORRECTIONS


def test_experts_of_a_rank_compute_the_tokens_of_all_engines():
    rows = np.array([[t, e, 1.0 * t + 10.0 * e] for t in (1, 2, 4) for e in (1, 2, 4)])
    table = experts_table(rows, 4, 2, 4, engines=2)
    # One token each: two in all, which use 4 (1 - 1/4) = 3; four each go on beyond four, as if 3.98 were used.
    np.testing.assert_allclose(table[0], [1, 32])
    np.testing.assert_allclose(table[3], [4, 8 + 40 * (1 - 0.5**8)])
    # A rank that holds 6 experts, two more than were timed.
    np.testing.assert_allclose(experts_table(rows, 6, 6, 1)[0], [1, 61])


BY_TOKENS = "tokens,activated_experts,time_us\n" + "".join(
    f"{t},{e},{1e4 * t + 1e6 * e}\n" for t in (1, 64) for e in (1, 8)
)


@pytest.mark.parametrize(("is_expert_parallel", "held", "each"), [(True, 4, 1), (False, 8, 2)])
def test_engines_side_by_side_share_their_experts(tmp_path, is_expert_parallel, held, each):
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 64, "enable_expert_parallel": is_expert_parallel}
    changes = {"model_shape": moe_shape(8), "engine": engine, "data_parallel": 2}
    folder = experts_case(tmp_path / "case", HEADER + ROW.replace("0,64,3", "0,1,1"), **changes)
    put(folder, "moe", BY_TOKENS)
    found = replay(read_case(folder), RUNS, INTERPOLATION, 0)
    # Two tokens in all, each with `each` of the `held` experts of a rank; the exchange of 2 x 8 elements takes least.
    used = held * (1 - (1 - each / held) ** 2)
    exchanges, _ = exchange_tables("rtx_pro_6000_server", 2, 8, 64)
    exchange_s = sum(table[0, 1] for table in exchanges.values())
    expected_s = 0.002 + 0.01 * 2 + used + exchange_s
    np.testing.assert_allclose(found.times.first_token_s, [expected_s], rtol=1e-9)
    assert found.derived == (
        "router (least 4 x waiting + running of 100 ms ago)",
        "experts in use (as of uniformly routed tokens)",
        "tokens of experts (an engine's own x 2: as if all had as many)",
        "exchange of tokens (all-gather and reduce-scatter: aiconfigurator_core rtx_pro_6000_server nccl 2.29.2)",
        "steps of engines (each at its own pace: not in lock step)",
    )
    unknown = replay(read_case(folder), RUNS.model_copy(update={"systems": {}}), INTERPOLATION, 0)
    np.testing.assert_allclose(unknown.times.first_token_s, [expected_s - exchange_s], rtol=1e-9)
    why = "not measured over 2 ranks of hardware without an entry in fidelity.systems"
    assert unknown.derived[3] == f"exchange of tokens (left out: {why})"


def test_tokens_of_all_engines_are_exchanged():
    (gathered, scattered), told = exchange_tables("rtx_pro_6000_server", 2, 1024, 4096)[0].values(), None
    assert told is None
    # 4,096 tokens of each of two engines: 8,388,608 elements, measured.
    np.testing.assert_allclose(gathered[-1], [4096, 0.27706e-3])
    assert scattered[-1, 1] != gathered[-1, 1]
    assert exchange_tables("rtx_pro_6000_server", 3, 1024, 4)[0] == {}


def test_uneven_experts_are_those_of_the_fullest_rank(tmp_path):
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 64, "enable_expert_parallel": True}
    changes = {"model_shape": moe_shape(3), "engine": engine, "data_parallel": 2}
    folder = experts_case(tmp_path / "case", HEADER + ROW.replace("0,64,3", "0,1,1"), **changes)
    put(folder, "moe", BY_TOKENS)
    found = replay(read_case(folder), RUNS.model_copy(update={"systems": {}}), INTERPOLATION, 0)
    # Two of three experts, of which each of two tokens uses 2 x 2/3.
    np.testing.assert_allclose(found.times.first_token_s, [0.002 + 0.02 + 2 * (1 - (1 / 3) ** 2)], rtol=1e-9)


def test_all_reduces_are_of_the_nearest_version_with_so_many_ranks():
    def source(version: str, ranks: int) -> str:
        return all_reduce_table("rtx_pro_6000_server", version, ranks, 8, 2, 64)[1]

    assert source("0.19.0", 2) == "all-reduce (aiconfigurator_core rtx_pro_6000_server vllm 0.19.0)"
    instead = "vllm 0.24.0 for 0.19.0, not measured over 4 ranks)"
    assert source("0.19.0", 4) == f"all-reduce (aiconfigurator_core rtx_pro_6000_server {instead}"
    assert "vllm 0.19.0 for 0.20.1" in source("0.20.1", 2)
    assert "vllm 0.24.0 for 0.23.0" in source("0.23.0", 2)
    # Halfway between two, the newer.
    assert "l40s vllm 0.22.0 for 0.18.0" in all_reduce_table("l40s", "0.18.0", 2, 8, 2, 64)[1]
    with pytest.raises(InputError, match="holds no all-reduce of vLLM over 3 ranks of rtx_pro_6000_server"):
        source("0.19.0", 3)


def test_without_a_second_token_there_is_no_tpot_and_that_is_said(tmp_path):
    case = read_case(write_case(tmp_path / "case", HEADER + ROW.replace("64,3", "64,1")))
    table = errors(case, replay(case, RUNS, INTERPOLATION, 0).times, "interpolation").to_pylist()
    assert {row["metric"].split()[0] for row in table} == {"TTFT", "E2E"}
    assert {row["source"] for row in table} == {"made up; derived: TPOT (left out: one output token in all 1)"}


def test_no_error_is_related_to_nothing(tmp_path):
    case = read_case(write_case(tmp_path / "case", HEADER + ROW.replace("0.1,0.2", "0.1,0.1")))
    with pytest.raises(InputError, match="case case: TPOT mean was measured as 0 ms, expected more than 0"):
        errors(case, replay(case, RUNS, INTERPOLATION, 0).times, "interpolation")


def test_what_is_assumed_of_the_engine_stands_beside_the_source(tmp_path):
    case = read_case(write_case(tmp_path / "case", HEADER + ROW, num_gpu_blocks=None))
    found = replay(case, RUNS, INTERPOLATION, 0)
    table = errors(case, found.times, "interpolation", found.derived)
    assert table["source"][0].as_py() == "made up; derived: KV blocks (40000 assumed: not recorded)"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "predictor", "most_ratio"),
    [
        ("rtx4090_llama31_8b", "interpolation", 0.0024),
        ("rtx4090_llama31_8b", "random_forest", 0.004),
        ("rtxpro6000_llama31_8b", "interpolation", 0.0153),
        ("rtxpro6000_llama31_8b", "extra_trees", 0.016),
    ],
)
def test_real_runs_are_met(data, name, predictor, most_ratio):
    case = read_case(data / "fidelity" / name)
    table = errors(case, replay(case, RUNS, predictor_of(predictor), 0).times, predictor)
    assert mean_absolute_error_ratio(table) <= most_ratio
    assert mean_absolute_error_ratio(table) < mean_absolute_error_ratio(table, "peer_error_ratio")


@pytest.mark.data
def test_the_kernels_of_a_real_run_are_known_from_a_part_of_them(data):
    case = read_case(data / "fidelity" / "rtx4090_llama31_8b")
    rows = held_out_errors(case, predictor_of("random_forest"), 0).to_pylist()
    about = {(row["case"], row["hardware"], row["model"], row["tensor_parallel"], row["predictor"]) for row in rows}
    assert about == {("rtx4090_llama31_8b", "RTX4090", "meta-llama/Llama-3.1-8B", 1, "random_forest")}
    errors_of = {row["operation"]: row["mape_ratio"] for row in rows if row["split"] == "held_out"}
    assert set(errors_of) == {"dense", "logits", "attention_prefill", "attention_decode", "attention_mixed"}
    assert max(errors_of.values()) < 0.06
