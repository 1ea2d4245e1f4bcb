"""What a router is, and what it may see: polled snapshots, its own ledger, a predicted output length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.spec import Spec
from pipeline.values import Role

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RequestView:
    """What is known of a request when it arrives; never its true output length."""

    request_id: int
    session_id: int
    class_name: str
    arrival_s: float
    input_tokens: int
    predicted_output_tokens: float
    prefix_block_ids: Ints


@dataclass(frozen=True, slots=True)
class PoolView:
    """What a deployed proxy knows of a pool of m instances at a decision; all arrays (m,).

    instance_ids; snapshot (as polled, snapshot_age_s old): queue_count, running_count, kv_used_tokens,
    kv_capacity_tokens; ledger (the router's own book of what it sent and what came back): in_flight_count,
    outstanding_input_tokens (prompt tokens sent whose first token has not come back), outstanding_output_tokens
    (predicted tokens not yet seen), matched_tokens (prefix of this request that, by the ledger, the instance holds);
    constants: prefill_s_per_token and decode_s_per_token (tau, per instance), slo_ttft_s, slo_tpot_s.
    """

    role: Role
    instance_ids: Ints
    snapshot_age_s: float
    queue_count: Ints
    running_count: Ints
    kv_used_tokens: Ints
    kv_capacity_tokens: Ints
    in_flight_count: Ints
    outstanding_input_tokens: Ints
    outstanding_output_tokens: Floats
    matched_tokens: Ints
    prefill_s_per_token: Floats
    decode_s_per_token: Floats
    slo_ttft_s: float
    slo_tpot_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Position of the chosen instance in the pool, and the backlog that the router believes it has."""

    index: int
    estimated_backlog_s: float


class RouterState:
    """What a router remembers between decisions in one simulation; fresh for each (never in the Spec)."""


class Router(Spec):
    """Chooses an instance of a pool for a request; stateless itself, `start` makes what it remembers."""

    def start(self) -> RouterState:
        """Fresh memory for one simulation."""
        return RouterState()

    def choose(
        self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator
    ) -> Decision:
        """Choose an instance; ties are broken with `rng`, never always towards instance 0."""
        raise NotImplementedError
