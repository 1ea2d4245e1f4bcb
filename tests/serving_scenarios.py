"""Small scenarios whose times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.eviction.base import EvictionPolicy
from pipeline.hardware.base import LinkConstants
from pipeline.model import Model
from pipeline.placement.base import Placement
from pipeline.predictor.step_table import linear_step_table
from pipeline.routing.base import Router
from pipeline.routing.length import LengthPredictor
from pipeline.serving.scenario import Scenario
from pipeline.spec import Spec, build
from pipeline.trace.request_trace import RequestTrace
from pipeline.values import Cluster, Engine, Pool, Slo

CONF = Path(__file__).resolve().parents[1] / "conf"
KV_BYTES_PER_TOKEN = 4.0
MODEL = Model(
    name="tiny",
    architecture="LlamaForCausalLM",
    hidden=1,
    layers=1,
    heads=1,
    kv_heads=1,
    head_dim=1,
    ffn=1,
    vocabulary=1,
    max_context_tokens=100_000,
    tied_embeddings=True,
    dtype="bfloat16",
    kv_dtype="bfloat16",
    source="made up",
    as_of="2026",
)
NAN = float("nan")


def option(group: str, name: str, kind: type[Spec], **changes: Any) -> Any:
    """An option of conf/, with some values changed."""
    config = yaml.safe_load((CONF / group / f"{name}.yaml").read_text())
    return build(config | changes, group, kind)


@dataclass(frozen=True)
class Request:
    """A request of a hand-made trace; blocks: names of its full blocks, prompt first."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: Sequence[str] = ()
    session: int | None = None
    think_s: float = NAN


def make_trace(requests: Sequence[Request], block_tokens: int = 16) -> RequestTrace:
    names = {name: i for i, name in enumerate(dict.fromkeys(block for r in requests for block in r.blocks))}
    count = len(requests)
    return RequestTrace(
        name="made up",
        block_tokens=block_tokens,
        classes=("all",),
        request_id=np.arange(count),
        session_id=np.array([i if r.session is None else r.session for i, r in enumerate(requests)]),
        class_id=np.zeros(count, np.int64),
        arrival_s=np.array([r.arrival_s for r in requests], np.float64),
        think_s=np.array([r.think_s for r in requests], np.float64),
        input_tokens=np.array([r.input_tokens for r in requests], np.int64),
        output_tokens=np.array([r.output_tokens for r in requests], np.int64),
        block_offset=np.concatenate([[0], np.cumsum([len(r.blocks) for r in requests])]).astype(np.int64),
        block_ids=np.array([names[block] for r in requests for block in r.blocks], np.int64),
        has_prefixes=bool(names),
    )


def engine(**changes: Any) -> Engine:
    values: dict[str, Any] = {
        "tensor_parallel": 1,
        "max_running": 8,
        "max_batched_tokens": 1000,
        "memory_utilisation": 0.9,
        "activation_bytes": 0.0,
        "prefix_cache": True,
        "async_scheduling": False,
        "block_tokens": 16,
        "kv_layout": "layers_apart",
    }
    return Engine(**(values | changes))


def links(bandwidth_bytes_per_s: float = 64.0, latency_s: float = 0.0) -> dict[tuple[str, str], LinkConstants]:
    pairs = [("hbm", "dram"), ("dram", "hbm"), ("dram", "ssd"), ("ssd", "dram"), ("hbm", "hbm")]
    pairs += [("dram", "remote"), ("remote", "dram")]
    return {pair: LinkConstants(bandwidth_bytes_per_s, latency_s, 0.0) for pair in pairs}


def mixed(count: int = 1) -> Cluster:
    return Cluster(name="mixed", pools=(Pool(role="mixed", count=count),))


def split(prefill: int = 1, decode: int = 1) -> Cluster:
    return Cluster(name="split", pools=(Pool(role="prefill", count=prefill), Pool(role="decode", count=decode)))


def scenario(
    trace: RequestTrace | Sequence[Request],
    hbm: int = 1000,
    dram: int = 0,
    ssd: int = 0,
    remote: int = 0,
    **changes: Any,
) -> Scenario:
    """A step takes 1 s and 0.01 s for each token; a block of 16 tokens crosses a link in 1 s."""
    values: dict[str, Any] = {
        "trace": trace if isinstance(trace, RequestTrace) else make_trace(trace),
        "model": MODEL,
        "engine": engine(),
        "capacity_blocks": [hbm, dram, ssd, remote],
        "eviction": option("eviction", "lru", EvictionPolicy),
        "placement": option("placement", "tiered", Placement, write_buffer_s=1e9),
        "step_table": linear_step_table(1.0, 0.01, 0.0, 0.0),
        "links": links(),
        "instances_per_node": 8,
        "cluster": mixed(),
        "router": option("routing", "round_robin", Router),
        "length": option("length", "constant", LengthPredictor),
        "prefill_s_per_token": 0.01,
        "decode_s_per_token": 0.01,
        "slo": Slo(name="any", ttft_ms=1000.0, tpot_ms=100.0),
        "seed": 0,
    }
    return Scenario(**(values | changes))


def names(prefix: str, count: int) -> list[str]:
    """Names of the blocks of a chain."""
    return [f"{prefix}{i}" for i in range(count)]
