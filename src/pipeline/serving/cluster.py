"""A cluster at work: arrivals, routing, loads, hand-offs and closed loops, as events around the compiled engines."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipeline.placement.base import ONBOARD
from pipeline.placement.stack import DRAM, HBM, SSD
from pipeline.serving.clock import Clock
from pipeline.serving.dispatch import Dispatch
from pipeline.serving.engine import Engines, Entry
from pipeline.serving.scenario import Scenario, SimulationOutput
from pipeline.serving.schedule import REMOTE_LOAD
from pipeline.serving.state import DONE, LOAD, NONE, Ints
from pipeline.serving.stays import make_stays, reject_reasons, successors


class Cluster:
    """One simulation. SimPy owns time; between its events the engines run by themselves.

    An engine never runs past the next event, nor past anything that others must hear of: a load that it begins, or the
    end of a request that someone waits for. Those become events at their time.
    """

    def __init__(self, scenario: Scenario, coasts: bool = True) -> None:
        trace = scenario.trace
        self._scenario = scenario
        self._follower = successors(trace)
        self._rows = make_stays(scenario, self._follower)
        self._engines = Engines(scenario, self._rows, _is_coupled(scenario, self._follower), coasts)
        self._dispatch = Dispatch(scenario, self._engines)
        self._clock = Clock()
        self._reason = reject_reasons(scenario)
        self._arrival_s = np.full(trace.request_count, np.nan)
        self._handoff_s = np.full(trace.request_count, np.nan)
        self._instance = np.full(self._rows.size, NONE, np.int64)
        followers = np.zeros(trace.request_count, np.bool_)
        followers[self._follower[self._follower != NONE]] = True
        self._open = np.flatnonzero(~followers).tolist()

    def run(self) -> SimulationOutput:
        """Let everything happen. Raises RuntimeError if a request never ends."""
        clock, engines = self._clock, self._engines
        self._await_open(0)
        while True:
            next_s = clock.peek()
            left_s, entries = engines.advance(next_s)
            if entries:
                self._hear(entries)
                next_s = clock.peek()
            if left_s < next_s:
                continue
            if next_s == np.inf:
                break
            clock.step()
        return self._output()

    def _await_open(self, position: int) -> None:
        """Make the arrival of the next request that waits for no other."""
        if position < len(self._open):
            request = self._open[position]
            self._clock.at(float(self._scenario.trace.arrival_s[request]), partial(self._open_arrival, position))

    def _open_arrival(self, position: int) -> None:
        self._await_open(position + 1)
        self._arrive(self._open[position])

    def _arrive(self, request: int) -> None:
        now_s = self._clock.now
        self._arrival_s[request] = now_s
        if self._reason[request]:
            self._ended(request)
            return
        chosen = self._dispatch.choose(request, now_s)
        for stay, instance in enumerate(chosen):
            self._instance[request + stay * self._scenario.trace.request_count] = instance
        self._engines.submit(chosen[0], request, now_s)

    def _hear(self, entries: list[Entry]) -> None:
        for entry in entries:
            time_s, kind, instance, row = entry
            if kind == LOAD:
                self._clock.at(time_s, partial(self._load, instance, row))
            else:
                self._clock.at(time_s, partial(self._completed, row))

    def _completed(self, row: int) -> None:
        count = self._scenario.trace.request_count
        if self._rows.keeps[row]:
            self._begin_decode(row + count)
        else:
            self._ended(row % count)

    def _ended(self, request: int) -> None:
        """Let the next turn of a closed-loop session come, once its user has thought."""
        following = int(self._follower[request])
        if following != NONE:
            think_s = float(self._scenario.trace.think_s[following])
            self._clock.at(self._clock.now + think_s, partial(self._arrive, following))

    def _begin_decode(self, row: int) -> None:
        """Queue a request whose prompt is computed at its decode instance, which will fetch its KV."""
        job = self._rows[row]
        now_s = self._clock.now
        job.first_token_s = job.last_token_s = now_s
        job.generated_tokens = 1
        self._engines.submit(int(self._instance[row]), row, now_s)

    def _load(self, instance: int, row: int) -> None:
        """Move what a row waits for: from its own lower tiers, and from the instance that computed its prompt."""
        engines, clock, now_s = self._engines, self._clock, self._clock.now
        blocks = self._rows[row].load_blocks
        ends = [now_s]
        for tier in (DRAM, SSD):
            if blocks[tier]:
                ends.append(engines.move(instance, (tier, HBM), ONBOARD, int(blocks[tier]), now_s))
        if self._rows.remote_tokens[row]:
            prefilled = row - self._scenario.trace.request_count
            source = int(self._instance[prefilled])
            end_s = now_s
            if blocks[REMOTE_LOAD]:
                end_s = engines.hand_off(source, instance, int(blocks[REMOTE_LOAD]), now_s)
            clock.at(end_s, partial(engines.let_go, source, prefilled, end_s))
            self._handoff_s[prefilled] = end_s - self._rows.first_token_s[prefilled]
            ends.append(end_s)
        clock.at(max(ends), partial(engines.loaded, instance, row, max(ends)))

    def _output(self) -> SimulationOutput:
        count = self._scenario.trace.request_count
        expected = np.tile(self._reason == "", self._rows.size // count)
        expected[count:] &= self._scenario.trace.output_tokens[: self._rows.size - count] > 1
        never = np.flatnonzero(expected & (self._rows.status != DONE))
        if never.size:
            raise RuntimeError(
                f"serving: {never.size} requests never ended, though nothing is left to happen; the first is request "
                f"{never[0] % count} at instance {self._instance[never[0]]}"
            )
        last_s = np.nan_to_num(self._rows.last_token_s).max(initial=0.0)
        end_s = float(max(last_s, np.nan_to_num(self._arrival_s).max(initial=0.0)))
        instances, accounts = self._engines.close(end_s)
        return SimulationOutput(
            scenario=self._scenario,
            rows=self._rows,
            instance=self._instance,
            arrival_s=self._arrival_s,
            reject_reason=self._reason,
            handoff_s=self._handoff_s,
            accounts=accounts,
            decisions=self._dispatch.decisions(),
            instances=instances,
            makespan_s=end_s - float(np.nanmin(self._arrival_s)),
        )


def _is_coupled(scenario: Scenario, follower: Ints) -> bool:
    """Whether what happens at one instance can reach another before the next event: then none may run ahead."""
    if len(scenario.roles) == 1:
        return False
    shares_ssd = scenario.capacity_blocks[SSD] > 0 and scenario.instances_per_node > 1
    return scenario.is_split or shares_ssd or bool((follower != NONE).any())
