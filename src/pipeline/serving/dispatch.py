"""Asking the router: what it sees of a pool at a decision, and what it learns from what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pipeline.placement.state import HBM
from pipeline.records import address_of, make_header
from pipeline.routing.base import Arrival, PoolView, RequestView, RouterState
from pipeline.routing.book import MOST_TOKENS
from pipeline.routing.instances import make_instances
from pipeline.routing.ledger import Ledger
from pipeline.routing.length import LengthPredictor
from pipeline.routing.prefix_index import PrefixIndex
from pipeline.serving.desk import DECISION, DESK, POOL, REFUSED, REQUEST, prepare, send
from pipeline.serving.engine import Engines
from pipeline.serving.scenario import Decisions, Scenario
from pipeline.spec import InputError
from pipeline.values import Role

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


def keyed_rng(seed: int, component: str) -> np.random.Generator:
    """Generator keyed by the seed and a component's name, so that no component shifts another's draws."""
    return np.random.Generator(np.random.Philox(key=[crc32(component.encode()), seed % 2**64]))


@dataclass(slots=True)
class _Pool:
    """The pool of instances with one role, numbered from `first` on, and what its router needs."""

    role: Role
    first: int
    ledger: Ledger
    view: PoolView
    state: RouterState
    rng: np.random.Generator


class _Requests:
    """What is told of the requests of a scenario: to compiled code as a table (n,), to Python as lists, which are read
    in a third of the time of arrays."""

    def __init__(self, scenario: Scenario) -> None:
        trace = scenario.trace
        self.table = np.zeros(trace.request_count, REQUEST)
        self.table["input_tokens"] = trace.input_tokens
        self.table["output_tokens"] = trace.output_tokens
        self.table["first_block"] = self.table["end_block"] = trace.block_offset[:-1]
        if scenario.reuses:
            listed = trace.block_offset[1:] - trace.block_offset[:-1]
            self.table["end_block"] += np.minimum(listed, trace.input_tokens // trace.block_tokens)
        self.block_ids = np.ascontiguousarray(trace.block_ids, np.int64)
        self._request_id: list[int] = trace.request_id.tolist()
        self._session_id: list[int] = trace.session_id.tolist()
        self._class_name = [trace.classes[i] for i in trace.class_id.tolist()]
        self._input_tokens: list[int] = trace.input_tokens.tolist()
        self._first_block: list[int] = self.table["first_block"].tolist()
        self._end_block: list[int] = self.table["end_block"].tolist()
        self._no_blocks = np.zeros(0, np.int64)
        self._slo_s = (scenario.slo.ttft_ms / 1e3, scenario.slo.tpot_ms / 1e3)

    def arrival(self, request: int, now_s: float) -> Arrival:
        """What a router may know of the request that arrives now."""
        first, end = self._first_block[request], self._end_block[request]
        return Arrival(
            self._request_id[request],
            self._session_id[request],
            self._class_name[request],
            now_s,
            self._input_tokens[request],
            self.block_ids[first:end] if first < end else self._no_blocks,
            *self._slo_s,
        )


class Dispatch:
    """Routes the requests of a scenario: once per role, at their arrival."""

    def __init__(self, scenario: Scenario, engines: Engines) -> None:
        trace, self._router, self._predictor = scenario.trace, scenario.router, scenario.length
        self._pools = [_make_pool(scenario, role) for role in sorted(set(scenario.roles), key=ROLES.index)]
        rng = keyed_rng(scenario.seed, "output length")
        self._lengths = self._predictor.start(trace.request_id, trace.output_tokens, rng)
        self._learns = type(self._predictor).observe is not LengthPredictor.observe
        self._arrivals: dict[int, Arrival] = {}
        self._requests = _Requests(scenario)
        self._ended = np.zeros(trace.request_count, np.int64)
        self._decisions = np.zeros(trace.request_count * len(self._pools), DECISION)
        self._desk, self._kept = self._make_desk(scenario, engines)
        self._address = address_of(self._desk)

    def choose(self, request: int, now_s: float) -> list[int]:
        """Choose an instance for the request at this position of the trace, in each pool it passes through.

        All engines must have run up to `now_s`. Raises InputError if the router chooses no instance of the pool, or
        the predicted length is none.
        """
        age_s, ended_count = prepare(self._address, request, now_s)
        if self._learns and ended_count:
            self._learn(ended_count)
        arrival = self._requests.arrival(request, now_s)
        if self._learns:
            self._arrivals[request] = arrival
        asked = RequestView(*arrival, self._predictor.predict(arrival, self._lengths))
        chosen = []
        for stay, pool in enumerate(self._pools):
            pool.view.snapshot_age_s = age_s
            index = self._router.pick(asked, pool.view, pool.state, pool.rng)
            instance = send(self._address, stay, index, request, asked.predicted_output_tokens)
            if instance == REFUSED:
                raise self._refusal(asked, pool, index)
            chosen.append(instance)
        return chosen

    def decisions(self) -> Decisions:
        """All decisions, in order."""
        made = self._decisions[: int(self._desk["decision_count"][0])]
        return Decisions(*(np.ascontiguousarray(made[name]) for name in DECISION.names or ()))

    def _learn(self, ended_count: int) -> None:
        """Tell the predictor of the requests that have ended."""
        for request in self._ended[:ended_count].tolist():
            output_tokens = int(self._requests.table["output_tokens"][request])
            self._predictor.observe(self._arrivals.pop(request), output_tokens, self._lengths)

    def _refusal(self, asked: RequestView, pool: _Pool, index: int) -> InputError:
        where = f"{pool.role} pool, request {asked.request_id}"
        if 0 <= index < pool.view.count:
            given = f"{type(self._predictor).__name__} predicted {asked.predicted_output_tokens} output tokens"
            return InputError(f"{where}: {given}, expected 0 to {MOST_TOKENS:.0f}")
        given = f"{type(self._router).__name__} chose position {index}"
        return InputError(f"{where}: {given}, expected one of {pool.view.count} instances from 0 on")

    def _make_desk(self, scenario: Scenario, engines: Engines) -> tuple[NDArray[Any], list[Any]]:
        """Make what compiled code works on, and what must be kept as long."""
        pools = [(pool.ledger.address, pool.first, pool.view.count, ROLES.index(pool.role)) for pool in self._pools]
        arrays = {
            "world": engines.world,
            "rows": engines.rows,
            "feed": engines.feed,
            "fed": engines.fed,
            "requests": self._requests.table,
            "pools": np.array(pools, POOL),
            "decisions": self._decisions,
            "block_ids": self._requests.block_ids,
            "unheard": np.zeros(engines.feed.size, np.int64),
            "ended": self._ended,
        }
        desk = make_header(
            DESK,
            **arrays,
            instance_count=engines.world.shape[0],
            world_columns=engines.world.shape[1],
            request_count=scenario.trace.request_count,
            pool_count=len(pools),
            block_tokens=scenario.trace.block_tokens,
            poll_interval_s=scenario.router.poll_interval_s,
            streams=scenario.router.drain == "stream",
            poll_number=-1,
        )
        return desk, [engines, *arrays.values()]


def _make_pool(scenario: Scenario, role: Role) -> _Pool:
    trace, roles = scenario.trace, scenario.roles
    first, count = roles.index(role), roles.count(role)
    capacity_blocks = np.full(count, scenario.stack_blocks[HBM])
    instances = make_instances(
        role,
        np.arange(first, first + count),
        capacity_blocks * trace.block_tokens,
        np.full(count, scenario.prefill_s_per_token),
        np.full(count, scenario.decode_s_per_token),
    )
    index = PrefixIndex(capacity_blocks, trace.block_tokens, trace.block_count)
    ledger = Ledger(role, scenario.router.drain, instances, index, trace.request_count)
    return _Pool(role, first, ledger, ledger.view, scenario.router.start(), keyed_rng(scenario.seed, f"router {role}"))
