"""One run simulated: its requests, on one instance with the limits and step times of its machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.eviction.lru import Lru
from pipeline.fidelity.case import Case, RunRequests, Times
from pipeline.fidelity.checked import Floats, Ints
from pipeline.fidelity.derived import all_reduce_table, exchange_tables, experts_table
from pipeline.fidelity.meta import Meta
from pipeline.fidelity.runs import Runs
from pipeline.model import Model
from pipeline.placement.base import Placement
from pipeline.predictor.base import Predictor
from pipeline.predictor.kernel_tables import KernelTables, graph_sizes, kernel_step_table
from pipeline.predictor.step_table import StepTable
from pipeline.routing.length import Oracle
from pipeline.routing.vllm_balancer import VllmBalancer
from pipeline.serving.scenario import Scenario
from pipeline.serving.simulate import simulate
from pipeline.trace.request_trace import RequestTrace
from pipeline.values import Cluster, Engine, Pool, Slo

BALANCER = VllmBalancer(poll_interval_s=0.1, drain="completion", waiting_weight=4.0, own_sends=1.0)
"""Between data-parallel engines, as in conf/routing/vllm_balancer.yaml; of no effect with one."""
PLACEMENT = Placement(
    name="gpu_only",
    inclusion="exclusive",
    hbm_keeps_unused=True,
    write_policy="none",
    write_threshold=None,
    writes_output=True,
    hits_count_below=False,
    keeps_on_the_way=False,
    lower_write_threshold=None,
    lower_order="root_first",
    spares_hbm=False,
    lower_write_policy="none",
    evict_at_ratio=1.0,
    evict_ratio=0.0,
    when_writes_lag="drop",
    write_buffer_s=0.0,
    load_or_recompute="always_load",
    least_load_tokens=0,
    delay_weight=1.0,
    deadline_s=None,
)


@dataclass(frozen=True)
class Replay:
    """When a simulated engine took each request and put out its tokens; what was assumed or derived, in words."""

    times: Times
    derived: tuple[str, ...]


def replay(case: Case, runs: Runs, predictor: Predictor, seed: int) -> Replay:
    """Simulate the run of a case, its step times predicted by `predictor`.

    Raises InputError where a part of its steps is known from nowhere.
    """
    kernels, derived = kernels_of(case, runs)
    layers = case.meta.model_shape.num_hidden_layers
    corrections = runs.corrections(case.meta.hardware, layers)
    table = kernel_step_table(kernels, layers, _engine(case.meta), predictor, corrections, seed)
    output = simulate(scenario_of(case, table, seed))
    times = Times(np.array(output.rows.taken_s), output.first_token_s, output.last_token_s)
    return Replay(times, (*case.meta.assumed, *derived))


def kernels_of(case: Case, runs: Runs) -> tuple[KernelTables, tuple[str, ...]]:
    """Kernel tables of a case with what had to be derived, and that in words."""
    meta, derived = case.meta, []
    dense = dict(case.kernels.dense)
    hidden, most_tokens = meta.model_shape.hidden_size, meta.engine.max_num_batched_tokens
    if meta.tensor_parallel > 1:
        system, graph_tokens = runs.system_of(meta.hardware), int(graph_sizes(_engine(meta))[-1])
        dense["all_reduce"], told = all_reduce_table(
            system, meta.vllm_version, meta.tensor_parallel, hidden, graph_tokens, most_tokens
        )
        derived.append(told)
    if case.experts is not None:
        tables, words = _experts(meta, case.experts, runs)
        dense |= tables
        derived += words
    return replace(case.kernels, dense=dense), tuple(derived)


def _experts(meta: Meta, rows: Floats, runs: Runs) -> tuple[dict[str, Floats], list[str]]:
    """Tables of a block of experts, and of the exchange of tokens around it; what is derived of them, in words.

    With data parallelism a rank computes, for the tokens of all engines, its share of the experts: some of them with
    expert parallelism, else a part of each.
    """
    shape, engines, most_tokens = meta.model_shape, meta.data_parallel, meta.engine.max_num_batched_tokens
    experts = shape.num_experts or 1
    held = -(-experts // meta.expert_ranks)
    each = (shape.num_experts_per_tok or 1) * held / experts
    tables = {"experts": experts_table(rows, held, each, most_tokens, engines)}
    derived = ["experts in use (as of uniformly routed tokens)"]
    if engines > 1:
        exchanges, told = exchange_tables(runs.systems.get(meta.hardware), engines, shape.hidden_size, most_tokens)
        tables |= exchanges
        derived += [
            f"tokens of experts (an engine's own x {engines}: as if all had as many)",
            told,
            "steps of engines (each at its own pace: not in lock step)",
        ]
    return tables, derived


def scenario_of(case: Case, table: StepTable, seed: int) -> Scenario:
    """The run of a case as a scenario: one instance, or as many as there are data-parallel engines."""
    return Scenario(
        trace=trace_of(case.name, case.requests, case.meta.block_size),
        model=_model(case),
        engine=_engine(case.meta),
        capacity_blocks=[case.meta.kv_blocks, 0, 0, 0],
        eviction=Lru(),
        placement=PLACEMENT,
        step_table=table,
        links={},
        instances_per_node=1,
        cluster=Cluster(name="replayed", pools=(Pool(role="mixed", count=case.meta.data_parallel),)),
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
    full_blocks = requests.full_blocks(block_tokens)
    block_count = 0
    for i in range(count):
        shared = chains[requests.prefix_parent[i]][: requests.prefix_blocks[i]] if requests.prefix_blocks[i] else []
        own = int(full_blocks[i]) - len(shared)
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


def _engine(meta: Meta) -> Engine:
    return Engine(
        tensor_parallel=meta.tensor_parallel,
        max_running=meta.engine.max_num_seqs,
        max_batched_tokens=meta.engine.max_num_batched_tokens,
        memory_utilisation=0.9,
        activation_bytes=0.0,
        kv_budget_tokens=None,
        prefix_cache=meta.enable_prefix_caching,
        async_scheduling=meta.async_scheduling is not False,
        block_tokens=meta.block_size,
        kv_layout="layers_together",
    )


def _model(case: Case) -> Model:
    meta, shape = case.meta, case.meta.model_shape
    longest = int((case.requests.input_tokens + case.requests.output_tokens).max(initial=1))
    return Model(
        name=meta.model,
        architecture="any",
        hidden=shape.hidden_size,
        layers=shape.num_hidden_layers,
        heads=shape.num_attention_heads,
        kv_heads=shape.num_key_value_heads,
        head_dim=shape.head_dim or max(shape.hidden_size // shape.num_attention_heads, 1),
        ffn=shape.intermediate_size or shape.moe_intermediate_size or 1,
        vocabulary=shape.vocab_size,
        max_context_tokens=longest,
        tied_embeddings=False,
        dtype="bfloat16",
        kv_dtype="bfloat16",
        source=meta.source_repo,
        as_of="measured",
    )
