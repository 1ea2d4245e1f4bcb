"""Replays of measured runs: what they share, how errors are counted, and how far the simulation is from real runs."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hardware_options import predictor_of
from kernel_profiles import CORRECTIONS, INTERPOLATION

from pipeline.fidelity.case import RunRequests, Times, read_case
from pipeline.fidelity.derived import all_reduce_table, experts_table
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
ROW = "0,64,3,0.0,-1,0,0,0,0,0.1,0.2\n"


def shape(kv_heads: int = 1) -> dict[str, int | None]:
    return {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": kv_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": None,
        "intermediate_size": 8,
        "vocab_size": 8,
        "num_experts": None,
    }


def write_case(folder: Path, requests: str, **meta) -> Path:
    """A case whose steps take 1 ms, and 1 ms more for each token."""
    folder.mkdir()
    values = {
        "source_repo": "made up",
        "model": "tiny",
        "hardware": "made up",
        "vllm_version": "0.19.0",
        "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 64, "enable_expert_parallel": False},
        "block_size": 16,
        "num_gpu_blocks": 100,
        "async_scheduling": True,
        "enable_prefix_caching": True,
        "tensor_parallel": 1,
        "data_parallel": 1,
        "skew_fit_enabled": False,
        "model_shape": shape(),
    }
    (folder / "meta.json").write_text(json.dumps(values | meta))
    tables = {
        "dense": "layer,tokens,time_us\nqkv_proj,1,2000\nqkv_proj,2,3000\nqkv_proj,64,65000\n",
        "per_sequence": "layer,sequences,time_us\nsampler,1,0\nsampler,64,0\n",
        "attention": "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
        + "".join(f"{q},{k},{d},{c},1e-9\n" for q in (0, 64) for k in (0, 64) for d in (0, 1) for c in (0, 64)
                  if (q or not k) and (d > 0) == (c > 0) and q + d),
        "requests": requests,
    }  # fmt: skip
    for name, text in tables.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


HEADER = (
    "request,input_tokens,output_tokens,arrival_s,prefix_parent,prefix_blocks,real_arrival_s,real_queued_s,"
    "real_scheduled_s,real_first_token_s,real_last_token_s\n"
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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel: given 0"),
        ({"data_parallel": None}, "data_parallel: given None"),
        ({"num_gpu_blocks": "many"}, "num_gpu_blocks"),
    ],
)
def test_a_run_of_another_kind_is_refused(tmp_path, change, told):
    with pytest.raises(InputError, match=told):
        read_case(write_case(tmp_path / "case", HEADER + "0,64,3,0.0,-1,0,0,0,0,0.1,0.2\n", **change))


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
    folder = write_case(tmp_path / "case", HEADER + ROW, model_shape=shape() | {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "intermediate_size": None})  # fmt: skip
    text = "tokens,activated_experts,time_us\n" + "".join(f"{t},{e},5000\n" for t in (1, 64) for e in (1, 4))
    (folder / "moe.csv.gz").write_bytes(gzip.compress(text.encode()))
    found = replay(read_case(folder), RUNS, INTERPOLATION, 0)
    np.testing.assert_allclose(found.times.first_token_s, [0.065 + 0.005], atol=1e-9)
    assert found.derived == ("experts in use: as uniformly routed tokens use",)


@pytest.mark.parametrize("column", ["prefix_parent", "real_queued_s", "arrival_s"])
def test_a_missing_column_is_named(tmp_path, column):
    text = (HEADER + "0,64,3,0.0,-1,0,0,0,0,0.1,0.2\n").replace(column, "other")
    with pytest.raises(InputError, match=rf"requests.csv.gz: column '{column}' is missing"):
        read_case(write_case(tmp_path / "case", text))


@pytest.mark.parametrize("row", ["0,64,3,0.0,5,1,0,0,0,0.1,0.2\n", "0,0,3,0.0,-1,0,0,0,0,0.1,0.2\n", ""])
def test_requests_that_make_no_sense_are_refused(tmp_path, row):
    with pytest.raises(InputError, match=r"requests.csv.gz"):
        read_case(write_case(tmp_path / "case", HEADER + row))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("layer,tokens,time_us\nqkv_proj,1,nan\n", "times of 0 or more"),
        ("layer,tokens,time_us\nqkv_proj,1,-1\n", "times of 0 or more"),
        ("name,tokens,time_us\nqkv_proj,1,1\n", "column 'layer'"),
        ("layer,tokens\nqkv_proj,1\n", "column 'time_us' is missing"),
        ("", "expected a readable table"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(tmp_path, text, told):
    folder = write_case(tmp_path / "case", HEADER + ROW)
    (folder / "dense.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match=rf"dense.csv.gz: .*{told}"):
        read_case(folder)


def test_the_hardware_of_a_run_says_how_much_longer_its_prefill_steps_take():
    longer = {"theirs": {"value": 2e-6, "source": "us", "as_of": "now"}}
    runs = Runs(**{**RUNS.model_dump(), "prefill_step_s_per_layer": longer})
    assert runs.corrections("theirs", 3) == CORRECTIONS.model_copy(update={"prefill_step_s": 6e-6})
    assert runs.corrections("another", 3) == CORRECTIONS


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


@pytest.mark.data
def test_a_case_with_a_file_missing_is_refused(data, tmp_path):
    shutil.copytree(data / "fidelity" / "rtx4090_llama31_8b", tmp_path / "case")
    (tmp_path / "case" / "dense.csv.gz").unlink()
    with pytest.raises(InputError, match=r"dense\.csv\.gz"):
        read_case(tmp_path / "case")
