"""What a simulation is told, and what it gives back, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy
from pipeline.hardware.base import LinkConstants
from pipeline.model import Model
from pipeline.placement.base import Placement
from pipeline.placement.prefetch import NoPrefetch, Prefetcher
from pipeline.predictor.step_table import StepTable
from pipeline.routing.base import Router
from pipeline.routing.length import LengthPredictor
from pipeline.serving.state import Floats, Ints, Rows
from pipeline.serving.wiring import NO_LIMITS, LinkLimits
from pipeline.spec import InputError
from pipeline.trace.request_trace import RequestTrace
from pipeline.values import Cluster, Engine, Role, Slo

NO_PREFETCH = NoPrefetch(name="none", mode="wait_complete", timeout_s=None)


@dataclass(frozen=True)
class Scenario:
    """One simulation: traffic, plant, and router.

    capacity_blocks: blocks of `trace.block_tokens` tokens that an instance holds in each tier, (4,) as TIERS; a tier
    that several share holds so many for each of them. shared_by: node or cluster, by the name of such a tier.
    step_table: times of the plant. links: constants by (source tier, target tier); hbm to hbm is the hand-off.
    instances_per_node: that share its drives. prefill_s_per_token, decode_s_per_token: the router's own constants
    (tau). link_limits: what links share beside that. hbm_bytes_per_s: of a GPU, which transfers take a part of from
    decoding; null: they do not. timeline_interval_s: length of an interval; null: what gives 200 to 400 of them.
    """

    trace: RequestTrace
    model: Model
    engine: Engine
    capacity_blocks: Sequence[int]
    eviction: EvictionPolicy
    placement: Placement
    step_table: StepTable
    links: Mapping[tuple[str, str], LinkConstants]
    instances_per_node: int
    cluster: Cluster
    router: Router
    length: LengthPredictor
    prefill_s_per_token: float
    decode_s_per_token: float
    slo: Slo
    seed: int
    prefetch: Prefetcher = NO_PREFETCH
    shared_by: Mapping[str, str] = field(default_factory=dict)
    link_limits: LinkLimits = NO_LIMITS
    hbm_bytes_per_s: float | None = None
    timeline_interval_s: float | None = None

    @property
    def reuses(self) -> bool:
        """Whether KV is kept for other requests."""
        return self.engine.prefix_cache and self.placement.streaming is None

    @property
    def stack_blocks(self) -> list[int]:
        """Blocks that requests can have in each tier, (4,): where KV is streamed, all count as HBM's.

        Raises InputError where they can have none.
        """
        if self.placement.streaming is None:
            return list(self.capacity_blocks)
        try:
            return [self.placement.streaming.held_blocks(self.capacity_blocks), 0, 0, 0]
        except ValueError as exc:
            raise InputError(str(exc)) from exc

    @property
    def max_context_tokens(self) -> int:
        """Longest prompt plus output that is served."""
        return self.engine.longest_context_tokens(self.model)

    @property
    def block_bytes(self) -> float:
        """KV bytes of one block, over all layers and ranks."""
        return self.trace.block_tokens * self.model.kv_bytes_per_token

    @property
    def pieces_per_block(self) -> int:
        """Contiguous pieces of a block of the trace on one rank."""
        return self.engine.kv_pieces(self.model, self.trace.block_tokens)

    @property
    def roles(self) -> list[Role]:
        """Role of each instance, by its number."""
        return [pool.role for pool in self.cluster.pools for _ in range(pool.count)]

    @property
    def stay_count(self) -> int:
        """Stays of a request at engines."""
        return 2 if self.is_split else 1

    @property
    def is_split(self) -> bool:
        """Whether prefill and decode happen at different instances."""
        return "prefill" in self.roles


@dataclass(frozen=True)
class Decisions:
    """What the router decided, (k,) each; request: position in the trace; role: index into ROLES."""

    request: Ints
    role: Ints
    instance: Ints
    chosen_match_tokens: Ints
    best_match_tokens: Ints
    estimated_backlog_s: Floats
    snapshot_age_s: Floats


@dataclass(frozen=True)
class InstanceUse:
    """How one instance was used.

    Tiers: (4,); of one that several share, its part. batch_s: (max_running + 1,) time by running requests.
    dropped_blocks: that were not written, because the link was behind or nothing could be evicted.
    moved_blocks: (4, 4, causes) by source tier, target tier and cause; streamed_blocks: read from DRAM by steps, and
    written there. blocks_left: still in use at the end; problems:
    broken invariants of its blocks. bins: (k, 4) integrals over intervals of bin_s seconds of waiting requests, running
    requests and used KV blocks, and output tokens.
    """

    lookup_blocks: Ints
    hit_blocks: Ints
    evicted_blocks: Ints
    dropped_blocks: Ints
    capacity_blocks: Floats
    mean_used_blocks: Floats
    peak_used_blocks: Floats
    moved_blocks: Ints
    streamed_blocks: tuple[float, float]
    blocks_left: int
    problems: Sequence[str]
    batch_s: Floats
    bins: Floats
    bin_s: float
    step_count: int
    step_s: float
    outside_s: float


@dataclass(frozen=True)
class SimulationOutput:
    """Everything that happened.

    rows: one per request, or, where prefill and decode are split, n of the prefill instances, then n of the decode
    instances (see state.ROW). instance: (rows,), -1 for a stay that never began. reject_reason: (n,) "" if it was not.
    arrival_s: (n,) at the router. handoff_s: (n,) from the first token to the arrival of the KV, NaN without one.
    accounts: (instances, tiers, tiers, causes, 3) blocks moved, busy and waiting seconds of links.
    """

    scenario: Scenario
    rows: Rows
    instance: Ints
    arrival_s: Floats
    reject_reason: NDArray[np.str_]
    handoff_s: Floats
    accounts: Floats
    decisions: Decisions
    instances: Sequence[InstanceUse]
    makespan_s: float

    @property
    def request_count(self) -> int:
        """Requests that arrived."""
        return self.scenario.trace.request_count

    @property
    def decodes_elsewhere(self) -> NDArray[np.bool_]:
        """Whether each request (n,) went on to a decode instance."""
        return ~np.isnan(self.handoff_s)

    @property
    def first_token_s(self) -> Floats:
        """When each request's (n,) first token came; NaN where there was none."""
        return self.rows.first_token_s[: self.request_count]

    @property
    def last_token_s(self) -> Floats:
        """When each request's (n,) last token came; NaN where there was none."""
        return self.of_last_stay("last_token_s")

    def of_last_stay(self, field: str) -> NDArray[Any]:
        """A field of the stay (n,) in which each request's output ended."""
        first = self.rows[field][: self.request_count]
        if not self.scenario.is_split:
            return first
        return np.where(self.decodes_elsewhere, self.rows[field][self.request_count :], first)
