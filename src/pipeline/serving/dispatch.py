"""Asking the router: what it sees of a pool at a decision, and what it learns from what comes back."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from zlib import crc32

import numpy as np

from pipeline.placement.stack import HBM
from pipeline.routing.base import Arrival, RequestView
from pipeline.routing.snapshot import PoolConstants, PoolObserver, Snapshot
from pipeline.serving.engine import Engines, Entry
from pipeline.serving.scenario import Decisions, Scenario
from pipeline.serving.state import COMPLETED, IN_BATCH, KV_BLOCKS, QUEUED
from pipeline.values import Role

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


def keyed_rng(seed: int, component: str) -> np.random.Generator:
    """Generator keyed by the seed and a component's name, so that no component shifts another's draws."""
    return np.random.Generator(np.random.Philox(key=[crc32(component.encode()), seed % 2**64]))


class PoolDispatch:
    """Chooses instances of the pool with `role`, whose instances are numbered from `first` on."""

    def __init__(self, scenario: Scenario, role: Role, first: int, count: int, engines: Engines) -> None:
        trace, router = scenario.trace, scenario.router
        known = PoolConstants(
            role,
            np.arange(first, first + count),
            np.full(count, scenario.capacity_blocks[HBM] * trace.block_tokens),
            np.full(count, scenario.prefill_s_per_token),
            np.full(count, scenario.decode_s_per_token),
        )
        self._observer = PoolObserver(known, router.drain, trace.block_tokens, trace.block_count)
        self._router, self._state = router, router.start()
        self._rng = keyed_rng(scenario.seed, f"router {role}")
        self._engines, self._block_tokens = engines, trace.block_tokens
        self._first, self._count = first, count
        self._polls = -1
        self._in_flight: dict[int, tuple[int, int]] = {}
        self.role = role

    def choose(self, request: RequestView, row: int, now_s: float) -> tuple[int, tuple[int, int, float, float]]:
        """Choose an instance for a request, whose stay there is `row`, and book it.

        Returns its number, and (matched tokens there, most matched anywhere, estimated backlog, age of the snapshot).
        All engines must have run up to `now_s`.
        """
        self._poll(now_s)
        if self._router.drain == "stream":
            self._stream(now_s)
        pool = self._observer.view(request, now_s)
        decision = self._router.choose(request, pool, self._state, self._rng)
        matched = int(pool.matched_tokens[decision.index])
        told = (matched, int(pool.matched_tokens.max()), decision.estimated_backlog_s, pool.snapshot_age_s)
        self._observer.ledger.sent(decision.index, request, matched)
        self._in_flight[row] = (decision.index, request.request_id)
        return self._first + decision.index, told

    def heard(self, entry: Entry) -> None:
        """Book what has come back from an instance of this pool."""
        _, kind, _, row = entry
        index, request_id = self._in_flight[row]
        if kind == COMPLETED:
            del self._in_flight[row]
            self._observer.ledger.completed(index, request_id)
        else:
            self._observer.ledger.first_token(index, request_id)

    def _poll(self, now_s: float) -> None:
        """Take the last poll before the present, if it was not taken yet."""
        interval_s = self._router.poll_interval_s
        if interval_s > 0:
            polls = math.floor(now_s / interval_s)
            while (polls + 1) * interval_s <= now_s:
                polls += 1
            while polls * interval_s > now_s:
                polls -= 1
            if polls == self._polls:
                return
            self._polls, now_s = polls, polls * interval_s
        seen = self._engines.poll(self._first, self._count, now_s)
        used_tokens = seen[:, KV_BLOCKS] * self._block_tokens
        self._observer.polled(Snapshot(now_s, seen[:, QUEUED], seen[:, IN_BATCH], used_tokens))

    def _stream(self, now_s: float) -> None:
        """Book the tokens that have come back: a proxy sees each one pass."""
        self._engines.settle(self._first, self._count)
        rows = self._engines.rows
        for row, (index, request_id) in self._in_flight.items():
            # The engine may be in a step that ends later: its token has not come yet.
            seen = int(rows.generated_tokens[row]) - bool(rows.last_token_s[row] > now_s)
            self._observer.ledger.streamed(index, request_id, seen)


class Dispatch:
    """Routes the requests of a scenario: once per role, at their arrival."""

    def __init__(self, scenario: Scenario, engines: Engines) -> None:
        trace, roles = scenario.trace, scenario.roles
        self._pools = [
            PoolDispatch(scenario, role, roles.index(role), roles.count(role), engines)
            for role in dict.fromkeys(sorted(roles, key=ROLES.index))
        ]
        self._length = scenario.length
        rng = keyed_rng(scenario.seed, "output length")
        self._lengths = scenario.length.start(trace.request_id, trace.output_tokens, rng)
        self._scenario = scenario
        self._output_tokens: list[int] = trace.output_tokens.tolist()
        self._known = _known(scenario)
        self._slo_s = (scenario.slo.ttft_ms / 1e3, scenario.slo.tpot_ms / 1e3)
        self._arrivals: dict[int, Arrival] = {}
        self._unread: list[Entry] = []
        self._engines, self._read = engines, 0
        self._decided: list[tuple[float, ...]] = []

    def choose(self, request: int, now_s: float) -> list[int]:
        """Choose an instance for the request at this position of the trace, in each pool it passes through."""
        self._catch_up(now_s)
        view = self._view(request, now_s)
        chosen = []
        for k, pool in enumerate(self._pools):
            instance, told = pool.choose(view, request + k * self._scenario.trace.request_count, now_s)
            self._decided.append((request, ROLES.index(pool.role), instance, *told))
            chosen.append(instance)
        return chosen

    def decisions(self) -> Decisions:
        """All decisions, in order."""
        columns = np.array(self._decided, np.float64).reshape(-1, 7).T
        return Decisions(*columns[:5].astype(np.int64), *columns[5:])

    def _catch_up(self, now_s: float) -> None:
        count, last = self._scenario.trace.request_count, len(self._pools) - 1
        fed = int(self._engines.fed[0])
        for entry in self._engines.feed[self._read : fed].tolist():
            heappush(self._unread, entry)
        self._read = fed
        while self._unread and self._unread[0][0] <= now_s:
            entry = heappop(self._unread)
            time_s, kind, instance, row = entry
            stay, request = divmod(row, count)
            self._pools[stay].heard(entry)
            output_tokens = self._output_tokens[request]
            if kind == COMPLETED and (stay == last or output_tokens == 1):
                if stay < last:
                    # It never goes to the decode instance, which the router could not know.
                    self._pools[last].heard((time_s, kind, instance, request + last * count))
                self._length.observe(self._arrivals.pop(request), output_tokens, self._lengths)

    def _view(self, request: int, now_s: float) -> RequestView:
        trace = self._scenario.trace
        identity, input_tokens, first_block, last_block = self._known[request]
        blocks = trace.block_ids[first_block:last_block]
        known = (*identity, now_s, input_tokens, blocks, self._slo_s[0], self._slo_s[1])
        arrival = Arrival(*known)
        self._arrivals[request] = arrival
        return RequestView(*known, predicted_output_tokens=self._length.predict(arrival, self._lengths))


def _known(scenario: Scenario) -> list[tuple[tuple[int, int, str], int, int, int]]:
    """What is told of each request: (id, session, class), prompt length, and the bounds of its prompt's blocks."""
    trace = scenario.trace
    first = trace.block_offset[:-1]
    listed = np.minimum(trace.block_offset[1:] - first, trace.input_tokens // trace.block_tokens)
    last = first + (listed if scenario.engine.prefix_cache else 0)
    classes = [trace.classes[i] for i in trace.class_id.tolist()]
    identity = zip(trace.request_id.tolist(), trace.session_id.tolist(), classes, strict=True)
    return list(zip(identity, trace.input_tokens.tolist(), first.tolist(), last.tolist(), strict=True))
