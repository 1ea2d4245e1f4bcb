"""Small made-up cases of fidelity on disk."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

HEADER = (
    "request,input_tokens,output_tokens,arrival_s,prefix_parent,prefix_blocks,real_arrival_s,real_queued_s,"
    "real_scheduled_s,real_first_token_s,real_last_token_s\n"
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


def write_case(folder: Path, requests: str, **meta: Any) -> Path:
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
        "scheduler_reserve_full_isl": True,
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
        put(folder, name, text)
    return folder


def moe_shape(experts: int = 4) -> dict[str, int | None]:
    of_experts = {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    return shape() | of_experts | {"intermediate_size": None}


def experts_case(folder: Path, requests: str = HEADER + ROW, **meta: Any) -> Path:
    """The same with four experts, two of which each token uses, and 5 ms for a block of them."""
    write_case(folder, requests, **{"model_shape": moe_shape(), **meta})
    put(folder, "moe", "tokens,activated_experts,time_us\n1,1,5000\n1,4,5000\n64,1,5000\n64,4,5000\n")
    return folder


def put(folder: Path, table: str, text: str) -> None:
    (folder / f"{table}.csv.gz").write_bytes(gzip.compress(text.encode()))


def text_of(folder: Path, table: str) -> str:
    return gzip.decompress((folder / f"{table}.csv.gz").read_bytes()).decode()
