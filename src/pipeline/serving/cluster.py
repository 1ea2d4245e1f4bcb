"""A cluster at work: arrivals, routing, loads, hand-offs and closed loops, as events around the compiled engines."""

from __future__ import annotations

from functools import partial

import numpy as np
from simpy.events import Event

from pipeline.serving.clock import Clock
from pipeline.serving.dispatch import Dispatch
from pipeline.serving.engine import Engines, Entry
from pipeline.serving.prefetching import Prefetching
from pipeline.serving.scenario import Scenario, SimulationOutput
from pipeline.serving.state import DONE, HANDOFF, NONE
from pipeline.serving.stays import make_stays, reject_reasons, successors


class Cluster:
    """One simulation. SimPy owns time; between its events the engines run by themselves.

    An engine never runs past the next event, nor past anything that others must hear of: a hand-off that it begins, or
    the end of a request that someone waits for. Those become events at their time.
    """

    def __init__(self, scenario: Scenario, coasts: bool = True) -> None:
        trace = scenario.trace
        self._scenario = scenario
        self._follower = successors(trace)
        self._rows = make_stays(scenario, self._follower)
        self._engines = Engines(scenario, self._rows, bool((self._follower != NONE).any()), coasts)
        self._dispatch = Dispatch(scenario, self._engines)
        self._clock = Clock()
        self._prefetching = None
        if scenario.prefetch.fetches and scenario.reuses:
            stays = self._rows.size - trace.request_count
            self._prefetching = Prefetching(scenario, self._engines, self._clock, stays)
        self._reason = reject_reasons(scenario)
        self._count = trace.request_count
        self._arrival_s = np.full(self._count, np.nan)
        self._handoff_s = np.full(self._count, np.nan)
        # Read and written once a request: plain lists cost a third of arrays.
        self._is_rejected: list[bool] = (self._reason != "").tolist()
        self._keeps: list[int] = self._rows.keeps.tolist()
        self._following: list[int] = self._follower.tolist()
        self._instance = [NONE] * (self._count * scenario.stay_count)
        self._first_token_s = self._rows.first_token_s
        followers = np.zeros(self._count, np.bool_)
        followers[self._follower[self._follower != NONE]] = True
        self._open = iter(np.flatnonzero(~followers).tolist())

    def run(self) -> SimulationOutput:
        """Let everything happen. Raises RuntimeError if a request never ends."""
        clock, engines = self._clock, self._engines
        self._await_open()
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

    def _await_open(self) -> None:
        """Make the arrival of the next request that waits for no other."""
        for request in self._open:
            self._clock.at(self._scenario.trace.arrival_s.item(request), partial(self._open_arrival, request))
            break

    def _open_arrival(self, request: int, event: Event) -> None:
        self._await_open()
        self._arrive(request, event)

    def _arrive(self, request: int, _event: Event) -> None:
        now_s = self._clock.now
        self._arrival_s[request] = now_s
        if self._is_rejected[request]:
            self._ended(request)
            return
        row = request
        for instance in self._dispatch.choose(request, now_s):
            self._instance[row] = instance
            row += self._count
        self._engines.submit(self._instance[request], request, now_s)
        if self._prefetching:
            self._prefetching.arrived(request, self._instance[request])

    def _hear(self, entries: list[Entry]) -> None:
        for time_s, kind, instance, row in entries:
            act = partial(self._hand_off, instance, row) if kind == HANDOFF else partial(self._completed, row)
            self._clock.at(time_s, act)

    def _completed(self, row: int, _event: Event) -> None:
        if self._keeps[row]:
            row += self._count
            self._engines.begin_decode(self._instance[row], row, self._clock.now)
        else:
            self._ended(row % self._count)

    def _ended(self, request: int) -> None:
        """Let the next turn of a closed-loop session come, once its user has thought."""
        following, next_s = self._following[request], None
        if following != NONE:
            next_s = self._clock.now + self._scenario.trace.think_s.item(following)
            self._clock.at(next_s, partial(self._arrive, following))
        if self._prefetching and not self._is_rejected[request]:
            self._prefetching.ended(request, self._instance[request], next_s)

    def _hand_off(self, instance: int, row: int, _event: Event) -> None:
        """Move the KV that a row waits for from the instance that computed its prompt."""
        prefilled = row - self._count
        source = self._instance[prefilled]
        there_s = self._engines.hand_off(instance, source, row, self._clock.now)
        self._handoff_s[prefilled] = there_s - self._first_token_s[prefilled]
        self._clock.at(there_s, partial(self._let_go, source, prefilled))
        self._clock.at(there_s, partial(self._handed_off, instance, row))

    def _let_go(self, instance: int, row: int, _event: Event) -> None:
        self._engines.let_go(instance, row, self._clock.now)

    def _handed_off(self, instance: int, row: int, _event: Event) -> None:
        self._engines.handed_off(instance, row, self._clock.now)

    def _output(self) -> SimulationOutput:
        count = self._count
        rows = self._rows[: count * self._scenario.stay_count]
        expected = np.tile(self._reason == "", self._scenario.stay_count)
        expected[count:] &= self._scenario.trace.output_tokens[: rows.size - count] > 1
        never = np.flatnonzero(expected & (rows.status != DONE))
        if never.size:
            raise RuntimeError(
                f"serving: {never.size} requests never ended, though nothing is left to happen; the first is request "
                f"{never[0] % count} at instance {self._instance[never[0]]}"
            )
        last_s = np.nan_to_num(rows.last_token_s).max(initial=0.0)
        end_s = float(max(last_s, np.nan_to_num(self._arrival_s).max(initial=0.0)))
        instances, accounts = self._engines.close(end_s)
        return SimulationOutput(
            scenario=self._scenario,
            rows=rows,
            instance=np.array(self._instance, np.int64),
            arrival_s=self._arrival_s,
            reject_reason=self._reason,
            handoff_s=self._handoff_s,
            accounts=accounts,
            decisions=self._dispatch.decisions(),
            instances=instances,
            makespan_s=end_s - float(np.nanmin(self._arrival_s)),
        )
