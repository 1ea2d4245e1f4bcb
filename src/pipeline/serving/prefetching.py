"""Prefetching at work: asking the prefetcher when to fetch, and having the engines do it."""

from __future__ import annotations

from functools import partial

import numpy as np
from simpy.events import Event

from pipeline.serving.clock import Clock
from pipeline.serving.engine import Engines
from pipeline.serving.scenario import Scenario
from pipeline.serving.state import NONE
from pipeline.trace.request_trace import RequestTrace


class Prefetching:
    """The prefetcher of a simulation. first_row: of the rows that stand for what is fetched, one per request.

    What a request used is fetched for the session's next one: its prompt, and of its output what the trace knows.
    """

    def __init__(self, scenario: Scenario, engines: Engines, clock: Clock, first_row: int) -> None:
        trace = scenario.trace
        self._watch = scenario.prefetch.watch()
        self._engines, self._clock, self._first_row = engines, clock, first_row
        self._session: list[int] = trace.session_id.tolist()
        self._kind: list[int] = trace.class_id.tolist()
        self._open_next_s = _next_arrivals_s(trace)
        self._newest: dict[int, int] = {}

    def arrived(self, request: int, instance: int) -> None:
        """Take note that a request has come to an instance."""
        session, now_s = self._session[request], self._clock.now
        self._newest[session] = request
        self._plan(request, instance, self._watch.arrived(session, self._kind[request], now_s))

    def ended(self, request: int, instance: int, next_s: float | None) -> None:
        """Take note that it has ended; next_s: when the session's next one will arrive, None in an open loop."""
        known_s = self._open_next_s[request] if next_s is None else next_s
        at_s = self._watch.ended(self._session[request], self._kind[request], self._clock.now, known_s)
        self._plan(request, instance, at_s)

    def _plan(self, request: int, instance: int, at_s: float) -> None:
        if at_s == self._clock.now:
            self._engines.fetch(instance, self._first_row + request, at_s)
        elif at_s < np.inf:
            self._clock.at(at_s, partial(self._fetch, request, instance))

    def _fetch(self, request: int, instance: int, _event: Event) -> None:
        if self._newest[self._session[request]] == request:  # else it has come back already
            self._engines.fetch(instance, self._first_row + request, self._clock.now)


def _next_arrivals_s(trace: RequestTrace) -> list[float]:
    """When the next request of each one's session arrives in an open loop; infinity for the last."""
    order = np.lexsort((trace.arrival_s, trace.session_id))
    following = np.full(trace.request_count, NONE, np.int64)
    same = trace.session_id[order][1:] == trace.session_id[order][:-1]
    following[order[:-1][same]] = order[1:][same]
    return np.where(following == NONE, np.inf, trace.arrival_s[following]).tolist()
