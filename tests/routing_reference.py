"""Routing once more, plainly and slowly: every sum taken anew from a dictionary of what is in flight."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from routing_pools import pool

from pipeline.routing.base import Arrival, PoolView, RequestView
from pipeline.serving import world
from pipeline.serving.dispatch import keyed_rng
from pipeline.serving.engine import Engines
from pipeline.serving.scenario import Decisions, Scenario
from pipeline.serving.state import COMPLETED, STATES

ROLES = ["prefill", "decode", "mixed"]


class Held:
    """Least recently used blocks, the end of a chain touched first, one dictionary per instance."""

    def __init__(self, capacity_blocks: Iterable[int]) -> None:
        self.capacity = list(capacity_blocks)
        self.held: list[OrderedDict[int, None]] = [OrderedDict() for _ in self.capacity]

    def record(self, index: int, chain: list[int]) -> None:
        held, capacity = self.held[index], self.capacity[index]
        for block in reversed(chain[:capacity]):
            held[block] = None
            held.move_to_end(block)
            while len(held) > capacity:
                held.popitem(last=False)

    def leading_run(self, chain: list[int]) -> list[int]:
        runs = []
        for held in self.held:
            run = 0
            while run < len(chain) and chain[run] in held:
                run += 1
            runs.append(run)
        return runs


@dataclass
class Sent:
    """A request in flight."""

    index: int
    poll: int
    input_tokens: int
    output_tokens: float
    predicted_tokens: float


class PlainPool:
    """The pool with one role."""

    def __init__(self, scenario: Scenario, role: str, engines: Engines) -> None:
        self.role, self.scenario, self.engines = role, scenario, engines
        self.first, self.count = scenario.roles.index(role), scenario.roles.count(role)
        self.held = Held([min(int(scenario.capacity_blocks[0]), scenario.trace.block_count)] * self.count)
        self.state, self.rng = scenario.router.start(), keyed_rng(scenario.seed, f"router {role}")
        self.sent: dict[int, Sent] = {}
        self.last_poll: tuple[int, float] = (-1, 0.0)
        self.seen = np.zeros((self.count, 3), np.int64)
        self.sends: list[tuple[int, int]] = []

    def poll(self, now_s: float) -> None:
        interval_s, last = self.scenario.router.poll_interval_s, self.last_poll
        if interval_s == 0:
            self.last_poll = (last[0] + 1, now_s)
        else:
            number = math.floor(now_s / interval_s) + 2
            while number * interval_s > now_s:
                number -= 1
            self.last_poll = (number, number * interval_s)
        if self.last_poll != last:
            self.seen = np.zeros((self.count, STATES), np.int64)
            world.poll(self.engines.world, self.first, self.last_poll[1], now_s, self.seen)

    def stream(self, stay: int, now_s: float) -> None:
        world.settle(self.engines.world, self.first, self.count, now_s)
        for request, sent in self.sent.items():
            row = self.engines.rows[request + stay * self.scenario.trace.request_count]
            seen = int(row.generated_tokens) - int(row.last_token_s > now_s)
            sent.output_tokens = min(sent.output_tokens, max(sent.predicted_tokens - seen, 0.0))

    def view(self, request: RequestView, now_s: float) -> PoolView:
        (number, poll_s), seen = self.last_poll, self.seen
        block_tokens = self.scenario.trace.block_tokens
        listed = request.prefix_block_ids.tolist()[: (request.input_tokens - 1) // block_tokens]
        here = [[sent for sent in self.sent.values() if sent.index == d] for d in range(self.count)]
        view = pool(
            self.count,
            self.role,
            instance_ids=range(self.first, self.first + self.count),
            queue_count=seen[:, 0],
            running_count=seen[:, 1],
            kv_used_tokens=seen[:, 2] * block_tokens,
            kv_capacity_tokens=self.scenario.capacity_blocks[0] * block_tokens,
            in_flight_count=[len(sent) for sent in here],
            sent_since_poll_count=[self.sends.count((d, number)) for d in range(self.count)],
            outstanding_input_tokens=[sum(sent.input_tokens for sent in some) for some in here],
            outstanding_output_tokens=[sum(sent.output_tokens for sent in some) for some in here],
            matched_tokens=np.array(self.held.leading_run(listed)) * block_tokens,
            prefill_s_per_token=self.scenario.prefill_s_per_token,
            decode_s_per_token=self.scenario.decode_s_per_token,
        )
        view.snapshot_age_s = now_s - poll_s
        return view

    def send(self, position: int, request: RequestView, index: int, matched: int) -> None:
        prompt = request.input_tokens - matched if self.role != "decode" else 0
        output = math.ceil(request.predicted_output_tokens * 1024) / 1024 if self.role != "prefill" else 0.0
        self.sent[position] = Sent(index, self.last_poll[0], prompt, output, output)
        self.sends.append((index, self.last_poll[0]))
        self.held.record(index, request.prefix_block_ids.tolist())


class PlainDispatch:
    """Stands in for Dispatch."""

    def __init__(self, scenario: Scenario, engines: Engines) -> None:
        trace, self.scenario, self.engines = scenario.trace, scenario, engines
        self.pools = [PlainPool(scenario, role, engines) for role in ROLES if role in scenario.roles]
        rng = keyed_rng(scenario.seed, "output length")
        self.lengths = scenario.length.start(trace.request_id, trace.output_tokens, rng)
        self.arrivals: dict[int, Arrival] = {}
        self.read, self.unheard = 0, list[tuple[float, int, int, int]]()
        self.decided: list[tuple[Any, ...]] = []

    def choose(self, request: int, now_s: float) -> list[int]:
        self.hear(now_s)
        arrival = self.arrivals[request] = self.arrival(request, now_s)
        asked = RequestView(*arrival, self.scenario.length.predict(arrival, self.lengths))
        chosen = []
        for stay, here in enumerate(self.pools):
            here.poll(now_s)
            if self.scenario.router.drain == "stream":
                here.stream(stay, now_s)
            view = here.view(asked, now_s)
            index = self.scenario.router.pick(asked, view, here.state, here.rng)
            matched, most = int(view.matched_tokens[index]), int(view.matched_tokens.max())
            prefill_s = float(view.outstanding_input_tokens[index] * view.prefill_s_per_token[index])
            backlog_s = prefill_s + float(view.outstanding_output_tokens[index] * view.decode_s_per_token[index])
            told = (here.first + index, matched, most, backlog_s, view.snapshot_age_s)
            self.decided.append((request, ROLES.index(here.role), *told))
            here.send(request, asked, index, matched)
            chosen.append(here.first + index)
        return chosen

    def hear(self, now_s: float) -> None:
        count, last = self.scenario.trace.request_count, len(self.pools) - 1
        self.unheard += self.engines.feed[self.read : int(self.engines.fed[0])].tolist()
        self.read = int(self.engines.fed[0])
        due = sorted(entry for entry in self.unheard if entry[0] <= now_s)
        self.unheard = [entry for entry in self.unheard if entry[0] > now_s]
        for _, kind, _, row in due:
            stay, request = divmod(row, count)
            output_tokens = int(self.scenario.trace.output_tokens[request])
            if kind != COMPLETED:
                self.pools[stay].sent[request].input_tokens = 0
                continue
            ends = stay == last or output_tokens == 1
            for here in self.pools[stay:] if ends else [self.pools[stay]]:
                del here.sent[request]
            if ends:
                self.scenario.length.observe(self.arrivals[request], output_tokens, self.lengths)

    def arrival(self, request: int, now_s: float) -> Arrival:
        trace, slo = self.scenario.trace, self.scenario.slo
        first, end = trace.block_offset[request], trace.block_offset[request + 1]
        full = trace.block_ids[first:end][: trace.input_tokens[request] // trace.block_tokens]
        return Arrival(
            int(trace.request_id[request]),
            int(trace.session_id[request]),
            trace.classes[trace.class_id[request]],
            now_s,
            int(trace.input_tokens[request]),
            full if self.scenario.engine.prefix_cache else full[:0],
            slo.ttft_ms / 1e3,
            slo.tpot_ms / 1e3,
        )

    def decisions(self) -> Decisions:
        columns = np.array(self.decided, np.float64).reshape(-1, 7).T
        return Decisions(*columns[:5].astype(np.int64), *columns[5:])
