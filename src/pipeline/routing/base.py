"""What a router is, and what it may see: polled snapshots, its own ledger, a predicted output length."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from pipeline.records import address_of
from pipeline.routing.instances import INSTANCE, Floats, Instances, Ints, backlog_s
from pipeline.spec import NonNegative, Spec
from pipeline.values import Role

Drain = Literal["completion", "stream"]


class Arrival(NamedTuple):
    """What is known of a request when it arrives; never its true output length.

    prefix_block_ids: full blocks of the *prompt* in chain order (those of the output would tell its length); empty
    where the trace has no prefixes. slo_ttft_s, slo_tpot_s: the objective this request asks for.
    """

    request_id: int
    session_id: int
    class_name: str
    arrival_s: float
    input_tokens: int
    prefix_block_ids: Ints
    slo_ttft_s: float
    slo_tpot_s: float


class RequestView(NamedTuple):
    """A request as a router sees it: its arrival, and the output length that a predictor gave for it."""

    request_id: int
    session_id: int
    class_name: str
    arrival_s: float
    input_tokens: int
    prefix_block_ids: Ints
    slo_ttft_s: float
    slo_tpot_s: float
    predicted_output_tokens: float


class PoolView:
    """What a deployed proxy knows of a pool of m instances; one view for all decisions, which follows the present.

    All arrays (m,), read-only; copy what is to be remembered.
    instance_ids; snapshot (as polled, snapshot_age_s old): queue_count, running_count, kv_used_tokens;
    ledger (the router's own book of what it sent and what came back): in_flight_count, sent_since_poll_count (sent
    after the snapshot was taken, so not in it), outstanding_input_tokens (uncached prompt tokens sent whose first
    token has not come back; 0 in a decode pool), outstanding_output_tokens (predicted tokens not yet seen; 0 in a
    prefill pool), matched_tokens (prefix of this request that, by the ledger, the instance holds; below
    input_tokens, since the last token is always computed);
    constants: kv_capacity_tokens; prefill_s_per_token and decode_s_per_token, the router's tau: seconds of the
    instance's time that one uncached prompt token, or one output token at the usual batch, takes.
    address, count: all of this for compiled routers, see `instances_at`.
    """

    __slots__ = ("role", "snapshot_age_s", "address", "count", *(INSTANCE.names or ()))

    role: Role
    snapshot_age_s: float
    address: int
    count: int
    instance_ids: Ints
    queue_count: Ints
    running_count: Ints
    kv_used_tokens: Ints
    kv_capacity_tokens: Ints
    in_flight_count: Ints
    sent_since_poll_count: Ints
    outstanding_input_tokens: Ints
    outstanding_output_tokens: Floats
    matched_tokens: Ints
    prefill_s_per_token: Floats
    decode_s_per_token: Floats

    def __init__(self, role: Role, instances: Instances) -> None:
        self.role = role
        self.snapshot_age_s = 0.0
        self.address, self.count = address_of(instances), instances.size
        shown = instances.view()
        shown.flags.writeable = False
        for name in INSTANCE.names or ():
            setattr(self, name, shown[name])

    def backlog_s(self, index: int) -> float:
        """Work ahead at the instance in position `index`, as the ledger has it, in seconds of its time."""
        return backlog_s(self.address, self.count, index)


class RouterState:
    """What a router remembers between decisions; one for each pool of each simulation (never in the Spec)."""


class Router(Spec):
    """Chooses an instance of a pool for a request; stateless itself, `start` makes what it remembers.

    A router file gives `pick`. poll_interval_s: how often instances are polled; a decision sees the last poll before
    it, 0 sees the present. drain: whether the ledger's outstanding output falls as tokens stream back, or at once on
    completion.
    """

    poll_interval_s: NonNegative
    drain: Drain

    def start(self) -> RouterState:
        """Fresh memory for one pool in one simulation."""
        return RouterState()

    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """Position of the chosen instance; ties are broken with `rng`, never always towards instance 0.

        The pool has at least one.
        """
        raise NotImplementedError
