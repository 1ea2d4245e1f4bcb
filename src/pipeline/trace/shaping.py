"""Load scaling: the same requests at another rate. No request is left out by itself, which would destroy reuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.spec import InputError
from pipeline.trace.draws import uniforms
from pipeline.trace.request_trace import Floats, Ints, RequestTrace
from pipeline.trace.selection import take
from pipeline.values import ScaleBy

WARM_UP_RATIO = 0.25
"""Share of the time over which sessions start that is not judged."""
LONG_SESSION_QUANTILE, WARM_UP_SESSIONS = 0.95, 1.25
"""The warm-up is to last as long as so many sessions of a length that so many do not exceed."""


def counts_by_arrival(trace: RequestTrace) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a request (n,) comes at its arrival_s: open loop, or the first turn of a closed-loop session."""
    return np.isnan(trace.think_s)


def mean_rate_per_s(trace: RequestTrace) -> float:
    """All requests over the last arrival that counts (of a request or, closed loop, of a session); inf if at 0."""
    last_s = float(trace.arrival_s[counts_by_arrival(trace)].max())
    return trace.request_count / last_s if last_s > 0 else float("inf")


def check_times(trace: RequestTrace) -> None:
    """Raise InputError where no load can be set by scaling time: all requests or, closed loop, sessions start at 0."""
    counts = counts_by_arrival(trace)
    if not trace.arrival_s[counts].any():
        what = "requests" if counts.all() else "sessions"
        raise InputError(
            f"trace {trace.name}: its {what} ({counts.sum()}) all start at one time, expected two times or more: "
            "a load is set by scaling the time between them"
        )


def at_rate(trace: RequestTrace, rate_per_s: float) -> RequestTrace:
    """Scale time so that mean_rate_per_s becomes `rate_per_s`.

    Open loop: all arrivals are scaled. Closed loop: session starts are, think times are not, for people think no
    faster under load; a session's turns keep their distance from its start, and sessions overlap more or less. The
    rate is the one offered while sessions start: afterwards the last ones run out. Raises InputError as check_times
    does, and for a rate that is not positive.
    """
    if not 0 < rate_per_s < float("inf"):
        raise InputError(f"load.rate_per_s: given {rate_per_s}, expected a positive rate")
    check_times(trace)
    start_s = trace.arrival_s[_start(trace)]
    arrival_s: Floats = start_s * (mean_rate_per_s(trace) / rate_per_s) + (trace.arrival_s - start_s)
    order = np.argsort(arrival_s, kind="stable")
    return take(replace(trace, arrival_s=arrival_s), order)


def with_sessions(trace: RequestTrace, rate_per_s: float) -> RequestTrace:
    """Keep whole sessions of an open-loop trace, or prefix groups, drawn evenly, so that the rest has `rate_per_s`.

    Times stay as they are, but for the part of a session that the rate may be off by. The sessions of a lower rate are
    among those of a higher one. Raises InputError as at_rate does, and for a rate above the trace's own.
    """
    most_per_s = mean_rate_per_s(trace)
    if rate_per_s > most_per_s:
        raise InputError(
            f"load.scale_by: given sessions, of which trace {trace.name} has {most_per_s:.4g} requests/s; asked for "
            f"are {rate_per_s:.4g}: expected at most what it has, or scale_by=time"
        )
    _, session, size = np.unique(trace.session_id, return_inverse=True, return_counts=True)
    order = np.argsort(uniforms(0, "shaping.sessions", size.size))
    held = np.cumsum(size[order])
    wanted = trace.request_count * rate_per_s / most_per_s
    kept = np.zeros(size.size, np.bool_)
    kept[order[: max(1, int(np.argmin(np.abs(held - wanted))) + 1)]] = True
    left = take(trace, np.flatnonzero(kept[session]))
    return at_rate(replace(left, arrival_s=left.arrival_s - left.arrival_s[0]), rate_per_s)


def loaded(trace: RequestTrace, rate_per_s: float, scale_by: ScaleBy = "time") -> RequestTrace:
    """What a simulation at `rate_per_s` gets: the trace at that rate, of closed loops as many sessions as it takes.

    That is: whole sessions that start while the load settles (longer than nearly every session lasts, think times
    alone) and is judged (three times as long); all there are, if they are fewer. An open-loop trace is kept whole if
    its time is scaled, and loses whole sessions otherwise (in a closed loop both are one: sessions start more often).
    """
    if not counts_by_arrival(trace).all():
        return _enough(at_rate(trace, rate_per_s))
    return at_rate(trace, rate_per_s) if scale_by == "time" else with_sessions(trace, rate_per_s)


def _enough(trace: RequestTrace) -> RequestTrace:
    first = _start(trace)
    start_s = trace.arrival_s[first]
    starts, session = np.unique(first, return_inverse=True)
    length_s = np.zeros(starts.size)
    np.maximum.at(length_s, session, trace.arrival_s - start_s)
    warm_up_s = WARM_UP_SESSIONS * float(np.quantile(length_s, LONG_SESSION_QUANTILE))
    if warm_up_s == 0:
        return trace
    return take(trace, np.flatnonzero(start_s <= warm_up_s / WARM_UP_RATIO))


def saturating(trace: RequestTrace) -> RequestTrace:
    """Let every session start at 0 and nobody think: what a capacity is measured with. Turns stay in sequence."""
    waits = np.where(np.isnan(trace.think_s), np.nan, 0.0)
    return replace(trace, arrival_s=np.zeros(trace.request_count), think_s=waits)


def _start(trace: RequestTrace) -> Ints:
    """Position (n,) of the request whose arrival starts each request's closed loop; its own where open."""
    order = np.argsort(trace.session_id, kind="stable")
    counts = counts_by_arrival(trace)[order]
    latest = np.maximum.accumulate(np.where(counts, np.arange(order.size), 0))
    start = np.empty_like(order)
    start[order] = order[latest]
    return start


def measured_window_s(trace: RequestTrace) -> tuple[float, float]:
    """First and last arrival, in seconds, of the requests that results are judged by.

    Open loop: all of them. Closed loop: sessions start at a steady rate, but the first quarter of that time is left
    for the number of open sessions to settle, and after the last start the load only runs out.
    """
    last_start_s = float(trace.arrival_s[counts_by_arrival(trace)].max())
    if counts_by_arrival(trace).all():
        return 0.0, last_start_s
    return WARM_UP_RATIO * last_start_s, last_start_s
