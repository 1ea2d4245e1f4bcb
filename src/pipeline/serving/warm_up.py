"""Compile all kernels of a simulation, by simulating next to nothing, so that jobs side by side need not."""

from __future__ import annotations

import numpy as np

from pipeline.eviction.lru import Lru
from pipeline.hardware.base import LinkConstants
from pipeline.model import Model
from pipeline.placement.base import Placement
from pipeline.predictor.step_table import linear_step_table
from pipeline.routing.cost_model import CostModel
from pipeline.routing.length import Oracle
from pipeline.serving.recorder import tables
from pipeline.serving.scenario import Scenario
from pipeline.serving.simulate import simulate
from pipeline.spec import Sourced
from pipeline.trace.request_trace import RequestTrace
from pipeline.values import Cluster, Engine, Pool, Slo

BLOCK_TOKENS, BLOCKS = 16, 4
PAIRS = (("hbm", "dram"), ("dram", "hbm"), ("dram", "ssd"), ("ssd", "dram"), ("hbm", "hbm"))
ANY = Sourced(value=1.0, source="made up", as_of="never")
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
    max_context_tokens=1000,
    tied_embeddings=True,
    dtype="bfloat16",
    kv_dtype="bfloat16",
    source="made up",
    as_of="never",
)
ENGINE = Engine(
    tensor_parallel=1,
    max_running=2,
    max_batched_tokens=64,
    memory_utilisation=0.5,
    activation_bytes=0,
    kv_budget_tokens=None,
    prefix_cache=True,
    async_scheduling=False,
    block_tokens=BLOCK_TOKENS,
    kv_layout="layers_apart",
)
ROUTER = CostModel(
    poll_interval_s=1.0,
    drain="completion",
    backlog_weight=1.0,
    service_weight=1.0,
    queue_weight_s=1.0,
    kv_pressure_weight=1.0,
    weights_source="made up",
    reference_ttft_s=ANY,
    reference_tpot_s=ANY,
)


def warm_up() -> None:
    """Simulate a mixed instance with three tiers, and a prefill and a decode instance."""
    mixed, split = (Pool(role="mixed", count=1),), (Pool(role="prefill", count=1), Pool(role="decode", count=1))
    for pools in (mixed, split):
        tables(simulate(_scenario(Cluster(name="tiny", pools=pools))), "warm up")


def _scenario(cluster: Cluster) -> Scenario:
    links = {pair: LinkConstants(1e9, 0.0, 0.0) for pair in PAIRS}
    return Scenario(
        trace=_trace(),
        model=MODEL,
        engine=ENGINE,
        capacity_blocks=[6, 4, 4, 0],
        eviction=Lru(),
        placement=Placement(
            name="tiered",
            inclusion="inclusive",
            hbm_keeps_unused=True,
            write_policy="write_through_selective",
            write_threshold=1,
            writes_output=True,
            hits_count_below=False,
            keeps_on_the_way=False,
            lower_write_threshold=None,
            lower_order="root_first",
            spares_hbm=False,
            lower_write_policy="write_back",
            evict_at_ratio=1.0,
            evict_ratio=0.0,
            when_writes_lag="wait",
            write_buffer_s=1.0,
            load_or_recompute="break_even",
            least_load_tokens=0,
            delay_weight=1.0,
            deadline_s=None,
        ),
        step_table=linear_step_table(1e-3, 1e-6, 1e-9, 1e-9),
        links=links,
        instances_per_node=1,
        cluster=cluster,
        router=ROUTER,
        length=Oracle(error_ratio=0.0),
        prefill_s_per_token=1.0,
        decode_s_per_token=1.0,
        slo=Slo(name="any", ttft_ms=1.0, tpot_ms=1.0),
        seed=0,
    )


def _trace() -> RequestTrace:
    """Six prompts of four blocks, some of them shared; more than HBM holds."""
    count = 6
    return RequestTrace(
        name="tiny",
        block_tokens=BLOCK_TOKENS,
        classes=("all",),
        request_id=np.arange(count),
        session_id=np.arange(count),
        class_id=np.zeros(count, np.int64),
        arrival_s=np.linspace(0.0, 2.5, count),
        think_s=np.full(count, np.nan),
        input_tokens=np.full(count, BLOCK_TOKENS * BLOCKS + 1),
        output_tokens=np.full(count, 3),
        block_offset=np.arange(count + 1) * BLOCKS,
        block_ids=np.tile(np.arange(3 * BLOCKS), 2),
        has_prefixes=True,
    )
