"""SimPy's environment, with events at absolute times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush

import simpy
from simpy.events import NORMAL, Event


class Clock(simpy.Environment):
    """Owns simulated time and the total order of events: by time, then in the order in which they were made."""

    def at(self, time_s: float, act: Callable[[Event], None]) -> None:
        """Call `act` with the event at `time_s`, exactly; a delay from now would round.

        Raises RuntimeError for a time in the past.
        """
        if not time_s >= self.now:
            raise RuntimeError(f"an event at {time_s} s lies in the past of {self.now} s")
        event = Event(self)
        event._ok = True
        event._value = None
        event.callbacks.append(act)
        heappush(self._queue, (time_s, NORMAL, next(self._eid), event))
