"""One run simulated: its requests, on one instance with the limits and step times of its machine."""

from __future__ import annotations

import numpy as np

from pipeline.eviction.lru import Lru
from pipeline.fidelity.case import Case, Ints, RunRequests, Times
from pipeline.placement.base import Placement
from pipeline.predictor.kernel_tables import kernel_step_table
from pipeline.predictor.step_table import StepTable
from pipeline.routing.length import Oracle
from pipeline.routing.round_robin import RoundRobin
from pipeline.serving.scenario import Scenario, SimulationOutput
from pipeline.serving.simulate import simulate
from pipeline.trace.request_trace import RequestTrace
from pipeline.values import Cluster, Engine, Model, Pool, Slo

AMPLE_KV_BLOCKS = 40_000
"""KV blocks where a run did not record them, since they never bound it."""


def replay(case: Case, prefill_step_s_per_layer: float, seed: int) -> Times:
    """Simulate the run of a case. prefill_step_s_per_layer: calibrated on other runs of its hardware, or 0."""
    return times_of(simulate(scenario_of(case, step_table_of(case, prefill_step_s_per_layer, seed), seed)))


def times_of(output: SimulationOutput) -> Times:
    """When the engine took each request, and put out its first and last token."""
    return Times(np.array(output.rows.taken_s), output.first_token_s, output.last_token_s)


def step_table_of(case: Case, prefill_step_s_per_layer: float, seed: int) -> StepTable:
    """Look-up of step times from the profile of the case."""
    layers = case.shape["num_hidden_layers"]
    return kernel_step_table(case.kernels, layers, _engine(case), prefill_step_s_per_layer * layers, seed)


def scenario_of(case: Case, table: StepTable, seed: int) -> Scenario:
    """The run of a case as a scenario of one instance."""
    return Scenario(
        trace=trace_of(case.name, case.requests, case.block_tokens),
        model=_model(case),
        engine=_engine(case),
        capacity_blocks=[AMPLE_KV_BLOCKS if case.kv_blocks is None else case.kv_blocks, 0, 0, 0],
        eviction=Lru(),
        placement=Placement(name="gpu_only", inclusion="exclusive", demote=False, load_or_recompute="always_load"),
        step_table=table,
        links={},
        instances_per_node=1,
        cluster=Cluster(name="one", pools=(Pool(role="mixed", count=1),)),
        router=RoundRobin(poll_interval_s=0.0, drain="completion"),
        length=Oracle(error_ratio=0.0),
        prefill_s_per_token=0.0,
        decode_s_per_token=0.0,
        slo=Slo(name="none", ttft_ms=1.0, tpot_ms=1.0),
        seed=seed,
    )


def trace_of(name: str, requests: RunRequests, block_tokens: int) -> RequestTrace:
    """Requests with their chains of blocks: what a prompt shares with an earlier request bears that one's numbers."""
    count = requests.arrival_s.size
    chains: list[Ints] = []
    block_count = 0
    for i in range(count):
        # The last token's KV is never there: a block that needs it is never full.
        full = int(requests.input_tokens[i] + requests.output_tokens[i] - 1) // block_tokens
        shared = chains[requests.prefix_parent[i]][: requests.prefix_blocks[i]] if requests.prefix_blocks[i] else []
        own = full - len(shared)
        chains.append(np.concatenate([shared, np.arange(block_count, block_count + own)]).astype(np.int64))
        block_count += own
    return RequestTrace(
        name=name,
        block_tokens=block_tokens,
        classes=("all",),
        request_id=np.arange(count),
        session_id=np.arange(count),
        class_id=np.zeros(count, np.int64),
        arrival_s=requests.arrival_s,
        think_s=np.full(count, np.nan),
        input_tokens=requests.input_tokens,
        output_tokens=requests.output_tokens,
        block_offset=np.cumsum([0, *map(len, chains)]).astype(np.int64),
        block_ids=np.concatenate(chains) if chains else np.zeros(0, np.int64),
        has_prefixes=True,
    )


def _engine(case: Case) -> Engine:
    return Engine(
        tensor_parallel=1,
        max_running=case.max_running,
        max_batched_tokens=case.max_batched_tokens,
        memory_utilisation=0.9,
        activation_bytes=0.0,
        kv_budget_tokens=None,
        prefix_cache=case.prefix_cache,
        async_scheduling=case.async_scheduling,
    )


def _model(case: Case) -> Model:
    shape = case.shape
    longest = int((case.requests.input_tokens + case.requests.output_tokens).max(initial=1))
    heads = shape["num_attention_heads"]
    return Model(
        name=case.model,
        architecture="any",
        hidden=shape["hidden_size"],
        layers=shape["num_hidden_layers"],
        heads=heads,
        kv_heads=shape["num_key_value_heads"],
        head_dim=shape.get("head_dim", shape["hidden_size"] // heads),
        ffn=shape["intermediate_size"],
        vocabulary=shape["vocab_size"],
        max_context_tokens=longest,
        tied_embeddings=False,
        dtype="bfloat16",
        kv_dtype="bfloat16",
        source=case.source,
        as_of="measured",
    )
