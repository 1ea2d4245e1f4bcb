"""Cases of fidelity on disk: what makes no sense is refused in one line that names file and row, column or key."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fidelity_cases import HEADER, ROW, experts_case, moe_shape, put, shape, text_of, write_case

from pipeline.fidelity.case import read_case
from pipeline.spec import InputError

SKEW = "pc,kp,n,nb,kv_big,kvs,t_skew_us,t_mean_us\n" + "0,0,2,1,512,128,47,46\n" * 9
PEER = "request,arrival_ns,ttft_ns,latency_ns\n0,0,1000000,2000000\n"
ENTIRE = "a whole number from"


def refused(folder) -> str:
    """What is said of a case, which must be one line."""
    with pytest.raises(InputError) as caught:
        read_case(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")


def with_request(cells: Mapping[str, Any]) -> str:
    """Two requests, the second of which has other cells."""
    names = HEADER.strip().split(",")
    values = dict(zip(names, ROW.strip().split(","), strict=True)) | {"request": 1} | cells
    return HEADER + ROW + ",".join(str(values[name]) for name in names) + "\n"


@pytest.mark.parametrize(
    ("table", "old", "new", "told"),
    [
        ("attention", "time_us", "x", "attention.csv.gz: column 'time_us' is missing; it has prefill_chunk"),
        ("attention", "n_decode,kv", "time_us,kv", "column 'n_decode' is missing"),
        ("attention", "kv_prefill", "time_us", "column 'kv_prefill' is missing"),
        ("attention", "64,0,0,0,1e-9", "64,0,0,0,abc", "column 'time_us': given abc, expected a finite number above 0"),
        ("attention", "64,0,0,0,1e-9", "64,0,0,0,", "column 'time_us': given nothing, expected"),
        ("attention", "64,0,0,0,1e-9", "64,0,0,0,nan", "column 'time_us': given nan, expected"),
        ("attention", "64,0,0,0,1e-9", "64,0,0,0,inf", "column 'time_us': given inf, expected"),
        ("attention", "64,0,0,0,1e-9", "64,0,0,0,0", "column 'time_us': given 0, expected"),
        ("attention", "64,0,0,0,1e-9", "64,0,0,0,-5", "column 'time_us': given -5, expected"),
        ("attention", "64,0,0,0,1e-9", "-64,0,0,0,1e-9", f"column 'prefill_chunk': given -64, expected {ENTIRE} 0"),
        ("attention", "64,0,0,0,1e-9", "nan,0,0,0,1e-9", f"column 'prefill_chunk': given nan, expected {ENTIRE} 0"),
        ("attention", "64,0,0,0,1e-9", "6.5,0,0,0,1e-9", f"column 'prefill_chunk': given 6.5, expected {ENTIRE} 0"),
        ("attention", "64,0,0,0,1e-9", "0,0,0,0,1e-9", "expected a prefill_chunk or n_decode of 1 or more"),
        ("attention", "64,0,0,0,1e-9", "64,0,1,0,1e-9", "expected an n_decode and a kv_decode of 1 or more, or of 0"),
        ("attention", "0,0,1,64,1e-9", "0,7,1,64,1e-9", "expected a kv_prefill of 0 without a prefill_chunk"),
        ("attention", "64,64,0,0", "64,0,0,0", "expected each prefill_chunk and kv_prefill and n_decode and kv_decode"),
        ("attention", "0,0,1,64,1e-9\n", "", "attention: given no batches of decodes alone"),
        ("dense", "qkv_proj,2,3000", "qkv_proj,2,nan", "dense.csv.gz, row 3, column 'time_us': given nan, expected a"),
        ("dense", "qkv_proj,2,3000", "qkv_proj,2,-1", "row 3, column 'time_us': given -1, expected a finite time of 0"),
        ("dense", "qkv_proj,2,3000", "qkv_proj,0,3000", f"column 'tokens': given 0, expected {ENTIRE} 1"),
        ("dense", "qkv_proj,2,3000", "qkv_proj,1e12,3000", f"column 'tokens': given 1e12, expected {ENTIRE} 1"),
        ("dense", "qkv_proj,2,3000", "qkv_proj,1,3000", "dense.csv.gz, row 3: expected each layer and tokens once"),
        ("dense", "qkv_proj,2,3000", ",2,3000", "row 3, column 'layer': given nothing, expected a name"),
        ("dense", "qkv_proj,2,3000", "act_fn,2,3000", "layer act_fn: given one count of tokens, expected two or more"),
        ("dense", "layer,", "name,", "dense.csv.gz: column 'layer' is missing; it has name, tokens, time_us"),
        ("per_sequence", "sampler,64,0\n", "", "layer sampler: given one count of sequences, expected two or more"),
        ("per_sequence", "sequences", "tokens", "column 'sequences' is missing"),
        ("requests", "arrival_s", "x", "requests.csv.gz: column 'arrival_s' is missing"),
        ("requests", "prefix_parent", "x", "requests.csv.gz: column 'prefix_parent' is missing"),
        ("requests", "real_arrival_s", "real_queued_s", "column 'real_queued_s' is there 2 times"),
        ("skew", "47", "nan", "skew.csv.gz, row 2, column 't_skew_us': given nan, expected a finite number above 0"),
        ("skew", "47", "-47", "column 't_skew_us': given -47"),
        ("skew", "2,1,", "2,3,", "skew.csv.gz, row 2: expected an nb of at most n"),
        ("skew", "kvs", "x", "skew.csv.gz: column 'kvs' is missing"),
        ("skew", "128", "0", f"column 'kvs': given 0, expected {ENTIRE} 1"),
        ("peer_sim", "request", "a", "peer_sim.csv.gz: column 'request' is missing; it has a, arrival_ns"),
        ("peer_sim", "\n0", "\n1", "peer_sim.csv.gz: given 1 rows, expected one for each request from 0 to 0"),
        ("peer_sim", "1000000", "nan", "column 'ttft_ns': given nan, expected a finite time of 0 or more"),
    ],
)  # fmt: skip
def test_a_table_that_makes_no_sense_is_refused(tmp_path, table, old, new, told):
    folder = write_case(tmp_path / "case", HEADER + ROW, skew_fit_enabled=table == "skew")
    put(folder, "skew", SKEW)
    put(folder, "peer_sim", PEER)
    read_case(folder)
    text = text_of(folder, table)
    assert old in text
    put(folder, table, text.replace(old, new))
    assert told in refused(folder)
    assert refused(folder).startswith(f"{table}.csv.gz")


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"arrival_s": "nan"}, "row 3, column 'arrival_s': given nan, expected a finite time of 0 or more"),
        ({"arrival_s": "inf"}, "column 'arrival_s': given inf"),
        ({"arrival_s": -1}, "column 'arrival_s': given -1"),
        ({"input_tokens": "nan"}, f"column 'input_tokens': given nan, expected {ENTIRE} 1"),
        ({"input_tokens": ""}, "column 'input_tokens': given nothing"),
        ({"input_tokens": 64.7}, "column 'input_tokens': given 64.7"),
        ({"input_tokens": 0}, "column 'input_tokens': given 0"),
        ({"output_tokens": "abc"}, "column 'output_tokens': given abc"),
        ({"prefix_parent": -2}, f"column 'prefix_parent': given -2, expected {ENTIRE} -1"),
        (
            {"prefix_parent": 1, "prefix_blocks": 1},
            "column 'prefix_parent': given 1, expected the number of an earlier",
        ),
        (
            {"prefix_parent": 9, "prefix_blocks": 1},
            "column 'prefix_parent': given 9, expected the number of an earlier",
        ),
        ({"prefix_blocks": 1}, "column 'prefix_parent': given -1, expected the number of an earlier request"),
        ({"prefix_parent": 0, "prefix_blocks": 5}, "column 'prefix_blocks': given 5, expected no more than the blocks"),
        ({"input_tokens": 31, "prefix_parent": 0, "prefix_blocks": 2}, "column 'prefix_blocks': given 2, expected no"),
        ({"input_tokens": 99, "prefix_parent": 0, "prefix_blocks": 5}, "column 'prefix_blocks': given 5, expected no"),
        ({"real_queued_s": "nan"}, "column 'real_queued_s': given nan"),
        ({"real_first_token_s": "nan"}, "column 'real_first_token_s': given nan"),
        ({"real_first_token_s": ""}, "column 'real_first_token_s': given nothing"),
        ({"real_queued_s": 5}, "column 'real_first_token_s': given 0.1, expected a time after real_queued_s"),
        ({"real_first_token_s": 0}, "column 'real_first_token_s': given 0, expected a time after real_queued_s"),
        ({"real_last_token_s": 0.05}, "column 'real_last_token_s': given 0.05, expected a time no earlier than real_f"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(tmp_path, cells, told):
    said = refused(write_case(tmp_path / "case", with_request(cells)))
    assert told in said
    assert said.startswith("requests.csv.gz, row 3")


def test_requests_out_of_order_are_refused(tmp_path):
    text = HEADER + ROW.replace("0.0", "1.0", 1) + ROW
    told = "requests.csv.gz, row 3, column 'arrival_s': given 0.0, expected requests in order of arrival"
    assert refused(write_case(tmp_path / "case", text)) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a readable table"),
        ("{header}\n", "given a header and no rows"),
        ("{header}\n{empty}\n", "given noth"),
    ],
)
@pytest.mark.parametrize("table", ["dense", "per_sequence", "attention", "requests", "skew", "moe", "peer_sim"])
def test_a_table_without_content_is_refused(tmp_path, table, text, told):
    folder = experts_case(tmp_path / "case", skew_fit_enabled=True)
    put(folder, "skew", SKEW)
    put(folder, "peer_sim", PEER)
    read_case(folder)
    header = text_of(folder, table).splitlines()[0]
    put(folder, table, text.format(header=header, empty="," * header.count(",")))
    said = refused(folder)
    assert said.startswith(f"{table}.csv.gz")
    assert told in said


@pytest.mark.parametrize("table", ["dense", "per_sequence", "attention", "requests", "skew", "moe"])
def test_a_table_that_cannot_be_read_is_refused(tmp_path, table):
    folder = experts_case(tmp_path / "case", skew_fit_enabled=True)
    put(folder, "skew", SKEW)
    path = folder / f"{table}.csv.gz"
    path.write_bytes(path.read_bytes()[:-12])
    assert f"{table}.csv.gz: expected a readable table" in refused(folder)
    path.unlink()
    assert f"{table}.csv.gz: expected a readable table" in refused(folder)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\n1,1,", "\n1,1,nan", "moe.csv.gz, row 2, column 'time_us': given nan5000, expected a finite number above 0"),
        ("\n1,1,5000", "\n1,1,nan", "row 2, column 'time_us': given nan"),
        ("\n1,1,5000", "\n1,1,-1", "row 2, column 'time_us': given -1"),
        ("\n1,1,", "\n1,0,", f"row 2, column 'activated_experts': given 0, expected {ENTIRE} 1"),
        ("\n64,", "\n1,", "moe.csv.gz, row 4: expected each tokens and activated_experts once"),
        ("\n64,1,5000\n64,4,5000", "", "moe.csv.gz: given times at 1 tokens alone, expected two counts or more"),
        ("time_us", "x", "moe.csv.gz: column 'time_us' is missing"),
    ],
)
def test_times_of_experts_that_make_no_sense_are_refused(tmp_path, old, new, told):
    folder = experts_case(tmp_path / "case")
    assert old in text_of(folder, "moe")
    put(folder, "moe", text_of(folder, "moe").replace(old, new))
    assert told in refused(folder)


NUMBERS = (
    *("engine.max_num_seqs", "engine.max_num_batched_tokens", "block_size", "tensor_parallel", "data_parallel"),
    *(f"model_shape.{name}" for name in (
        "num_experts_per_tok", "moe_intermediate_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size",
    )),
)  # fmt: skip
FLAGS = ("engine.enable_expert_parallel", "enable_prefix_caching", "skew_fit_enabled")


def change_meta(folder, key: str, value: Any) -> None:
    """Set a key of meta.json; drop it for `...`."""
    meta = json.loads((folder / "meta.json").read_text())
    *path, name = key.split(".")
    part = meta
    for step in path:
        part = part[step]
    part[name] = value
    if value is ...:
        del part[name]
    (folder / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in NUMBERS for value in (..., None, 0, -1, "a", 1.5, True, 10**18)),
        *((key, value) for key in FLAGS for value in (..., None, "false", 0)),
        *(("num_gpu_blocks", value) for value in (..., 0, -1, "many", 1.5)),
        *(("model_shape.num_experts", value) for value in (..., None, 0, "a")),
        *(("async_scheduling", value) for value in (..., "false", 1)),
        *(("engine", value) for value in (..., "x", None)),
        *(("model_shape", value) for value in (..., [], 3)),
        *(("vllm_version", value) for value in (..., None, "", 0.19)),
    ],
)
def test_a_key_of_meta_that_makes_no_sense_is_refused(tmp_path, key, value):
    folder = experts_case(tmp_path / "case")
    change_meta(folder, key, value)
    may_lack = ("model_shape.num_experts_per_tok", "model_shape.moe_intermediate_size")  # as a dense model does
    if value is ... and key not in may_lack:
        assert refused(folder) == f"meta.json: missing {key}"
    else:
        given = "null|None" if value in (None, ...) else re.escape(repr(value))
        assert re.match(rf"meta.json: {re.escape(key)}: given ({given})", refused(folder))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"model_shape": moe_shape() | {"num_experts_per_tok": 9}},
            "model_shape.num_experts_per_tok: given 9, expected",
        ),
        (
            {
                "data_parallel": 8,
                "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 64, "enable_expert_parallel": True},
            },
            "model_shape.num_experts: given 4, expected one or more for each of the 8 ranks",
        ),
        (
            {"model_shape": shape() | {"num_experts_per_tok": 2}},
            "model_shape.num_experts: given null beside num_experts_p",
        ),
        (
            {"model_shape": shape() | {"intermediate_size": None}},
            "model_shape.intermediate_size: given null without exp",
        ),
        (
            {"model_shape": shape(2) | {"num_key_value_heads": 4}},
            "model_shape.num_key_value_heads: given 4, expected a d",
        ),
        ({"tensor_parallel": 3}, "tensor_parallel: given 3, expected a divisor of the 1 heads"),
    ],
)
def test_what_does_not_fit_together_in_meta_is_refused(tmp_path, changes, told):
    assert f"meta.json: {told}" in refused(experts_case(tmp_path / "case", **changes))


@pytest.mark.parametrize(
    ("text", "told"), [("[]", "given list"), ("{", "readable JSON"), ("{}", "missing source_repo, m")]
)
def test_another_file_is_no_meta(tmp_path, text, told):
    folder = write_case(tmp_path / "case", HEADER + ROW)
    (folder / "meta.json").write_text(text)
    assert told in refused(folder)


def test_what_was_not_recorded_is_assumed_and_named(tmp_path):
    words = {
        "async_scheduling": "not recorded; on by default",
        "num_gpu_blocks": None,
        "scheduler_reserve_full_isl": False,
    }
    meta = read_case(write_case(tmp_path / "case", HEADER + ROW, **words, data_parallel=2)).meta
    assert (meta.kv_blocks, meta.async_scheduling) == (40_000, None)
    assert meta.assumed == (
        "KV blocks (40000 assumed: not recorded)",
        "async scheduling (on assumed: not recorded)",
        "admission (waits for the whole prompt to fit: the run's engine did not)",
        "router (least 4 x waiting + running of 100 ms ago)",
    )
    assert read_case(write_case(tmp_path / "known", HEADER + ROW)).meta.assumed == ()


def test_requests_that_the_run_served_and_no_simulated_engine_could_are_counted(tmp_path):
    # 64 + 3 tokens, of which the last is never stored: five blocks of 16; 64 + 1: four.
    rows = ROW.replace("64,3", "64,1") + ROW.replace("0,64", "1,64", 1) + ROW.replace("0,64", "2,80", 1)
    read_case(write_case(tmp_path / "six", HEADER + rows, num_gpu_blocks=6))
    said = refused(write_case(tmp_path / "four", HEADER + rows, num_gpu_blocks=4))
    assert said == (
        "meta.json: num_gpu_blocks: given 4, but 2 of 3 requests can never fit; the first, request 1, needs 5 blocks "
        "of 16 tokens, and the run served it"
    )
    long = ROW.replace("0,64", "0,640001", 1)
    said = refused(write_case(tmp_path / "assumed", HEADER + long, num_gpu_blocks=None))
    assert "num_gpu_blocks: given null, for which 40000 are assumed, but 1 of 1 requests can never fit" in said


@pytest.mark.data
def test_a_case_with_a_file_missing_is_refused(data, tmp_path):
    shutil.copytree(data / "fidelity" / "rtx4090_llama31_8b", tmp_path / "case")
    (tmp_path / "case" / "dense.csv.gz").unlink()
    assert "dense.csv.gz" in refused(tmp_path / "case")


def test_what_a_peer_found_is_ordered_by_request(tmp_path):
    folder = write_case(tmp_path / "case", HEADER + ROW + ROW)
    put(folder, "peer_sim", "latency_ns,request,arrival_ns,ttft_ns\n4e9,1,1e9,2e9\n3e9,0,0,1e9\n")
    peer = read_case(folder).peer
    assert peer is not None
    np.testing.assert_allclose([peer.taken_s, peer.first_token_s, peer.last_token_s], [[0, 1], [1, 3], [3, 5]])
