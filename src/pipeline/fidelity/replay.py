"""One run simulated: its requests, on one instance with the limits and step times of its machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.eviction.lru import Lru
from pipeline.fidelity.case import Case, Ints, RunRequests, Times
from pipeline.fidelity.derived import all_reduce_table, experts_table
from pipeline.fidelity.runs import Runs
from pipeline.placement.base import Placement
from pipeline.predictor.base import Predictor
from pipeline.predictor.kernel_tables import KernelTables, graph_sizes, kernel_step_table
from pipeline.predictor.step_table import StepTable
from pipeline.routing.length import Oracle
from pipeline.routing.vllm_balancer import VllmBalancer
from pipeline.serving.scenario import Scenario
from pipeline.serving.simulate import simulate
from pipeline.trace.request_trace import RequestTrace
from pipeline.values import Cluster, Engine, Model, Pool, Slo

BALANCER = VllmBalancer(poll_interval_s=0.1, drain="completion", waiting_weight=4.0, own_sends=1.0)
"""Between data-parallel engines, as in conf/routing/vllm_balancer.yaml; of no effect with one."""
PLACEMENT = Placement(
    name="gpu_only",
    inclusion="exclusive",
    demote=False,
    load_or_recompute="always_load",
    delay_weight=1.0,
    deadline_s=None,
    write_buffer_s=0.0,
)
AMPLE_KV_BLOCKS = 40_000
"""KV blocks where a run did not record them, since they never bound it."""


@dataclass(frozen=True)
class Replay:
    """When a simulated engine took each request and put out its tokens; what of its steps was derived, in words."""

    times: Times
    derived: tuple[str, ...]


def replay(case: Case, runs: Runs, predictor: Predictor, seed: int) -> Replay:
    """Simulate the run of a case, its step times predicted by `predictor`.

    Raises InputError where a part of its steps is known from nowhere.
    """
    kernels, derived = kernels_of(case, runs)
    layers = case.shape["num_hidden_layers"]
    table = kernel_step_table(kernels, layers, _engine(case), predictor, runs.corrections(case.hardware, layers), seed)
    output = simulate(scenario_of(case, table, seed))
    return Replay(Times(np.array(output.rows.taken_s), output.first_token_s, output.last_token_s), derived)


def kernels_of(case: Case, runs: Runs) -> tuple[KernelTables, tuple[str, ...]]:
    """Kernel tables of a case with what had to be derived, and that in words."""
    dense, derived = dict(case.kernels.dense), []
    limits = _engine(case)
    if case.tensor_parallel > 1:
        system = runs.system_of(case.hardware)
        graph_tokens = int(graph_sizes(limits)[-1])
        dense["all_reduce"], told = all_reduce_table(
            system, case.engine_version, case.tensor_parallel, case.shape["hidden_size"], graph_tokens,
            case.max_batched_tokens,
        )  # fmt: skip
        derived.append(told)
    if case.experts is not None:
        ranks = case.tensor_parallel * case.data_parallel if case.expert_parallel else 1
        held, each = case.shape["num_experts"] // ranks, case.shape["num_experts_per_tok"] / ranks
        dense["experts"] = experts_table(case.experts, held, each, case.max_batched_tokens)
        derived.append("experts in use: as uniformly routed tokens use")
        if case.data_parallel > 1:
            derived.append("data-parallel engines: each at its own pace, not in lock step")
    return replace(case.kernels, dense=dense), tuple(derived)


def scenario_of(case: Case, table: StepTable, seed: int) -> Scenario:
    """The run of a case as a scenario: one instance, or as many as there are data-parallel engines."""
    return Scenario(
        trace=trace_of(case.name, case.requests, case.block_tokens),
        model=_model(case),
        engine=_engine(case),
        capacity_blocks=[AMPLE_KV_BLOCKS if case.kv_blocks is None else case.kv_blocks, 0, 0, 0],
        eviction=Lru(),
        placement=PLACEMENT,
        step_table=table,
        links={},
        instances_per_node=1,
        cluster=Cluster(name="replayed", pools=(Pool(role="mixed", count=case.data_parallel),)),
        router=BALANCER,
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
        tensor_parallel=case.tensor_parallel,
        max_running=case.max_running,
        max_batched_tokens=case.max_batched_tokens,
        memory_utilisation=0.9,
        activation_bytes=0.0,
        kv_budget_tokens=None,
        prefix_cache=case.prefix_cache,
        async_scheduling=case.async_scheduling,
        block_tokens=case.block_tokens,
        kv_layout="layers_together",
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
        ffn=shape["intermediate_size" if case.experts is None else "moe_intermediate_size"],
        vocabulary=shape["vocab_size"],
        max_context_tokens=longest,
        tied_embeddings=False,
        dtype="bfloat16",
        kv_dtype="bfloat16",
        source=case.source,
        as_of="measured",
    )
