"""`SessionFile`: what readers share whose file holds sessions, each on a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import model_validator
from typing_extensions import override

from pipeline.spec import Count, Positive
from pipeline.trace.draws import uniforms
from pipeline.trace.file_source import FileSource
from pipeline.trace.ledger import CHANGED, Ledger
from pipeline.trace.request_trace import Floats, Ints, RequestTrace
from pipeline.trace.selection import keep, take

Loop = Literal["open", "closed"]


class SessionFile(FileSource):
    """Sessions whose requests are timed from the start of their session: that is what `Row.arrival_ns` says here.

    When sessions start is not in the file: they start in its order as a Poisson process of `sessions_per_s` (a nominal
    rate, which load scaling replaces), drawn by each seed.
    loop: `closed`: a request comes think_s after the end of the one before it in its session, so that a slower service
    is asked later; where the file gives no think time, the recorded time between the two arrivals stands in (too long
    by the recorded service). `open`: every request comes at its recorded time after the start.
    max_think_s: closed loop only: longer think times are cut to it, and counted (null: none is).
    max_sessions: use the first so many sessions (null: all).
    """

    sessions_per_s: Positive
    loop: Loop
    max_think_s: Positive | None
    max_sessions: Count | None

    @override
    def assumed(self) -> str:
        """When sessions start is not in the file."""
        return (
            f"when sessions start is not in the file: {self.sessions_per_s:g} a second are assumed "
            "(trace.sessions_per_s), and rates, working sets, hits by cache size and so the verdict depend on it"
        )

    @model_validator(mode="after")
    def _thinks_in_a_closed_loop(self) -> SessionFile:
        if self.loop == "open" and self.max_think_s is not None:
            raise ValueError("max_think_s: cuts think times, which loop=open does without; expected null")
        return self

    @override
    def arranged(self, trace: RequestTrace, arrival_ns: Ints, ledger: Ledger) -> RequestTrace:
        """Order each session by time; until a seed draws the starts, the k-th session starts at k / sessions_per_s."""
        if not trace.request_count:
            return trace
        order = np.lexsort((arrival_ns, trace.session_id))
        ledger.add_all(
            CHANGED + "earlier than a row before it in its session, sorted by time",
            trace.request_id[_late(order, trace.session_id)],
        )
        sessions = take(trace, order)
        _, first, session = np.unique(sessions.session_id, return_index=True, return_inverse=True)
        times_ns = arrival_ns[order]
        since_s = (times_ns - times_ns[first][session]) / 1e9
        think_s, cut_s = self._think_s(sessions, np.diff(times_ns, prepend=0) / 1e9, first, ledger)
        cut_s = np.cumsum(cut_s)
        arrival_s = session / self.sessions_per_s + since_s - (cut_s - cut_s[first][session])
        nominal = replace(sessions, arrival_s=arrival_s, think_s=think_s)
        return take(nominal, np.argsort(arrival_s, kind="stable"))

    def _think_s(self, sessions: RequestTrace, gap_s: Floats, first: Ints, ledger: Ledger) -> tuple[Floats, Floats]:
        """Think times, and by how much each was cut."""
        think_s = np.where(np.isnan(sessions.think_s), gap_s, sessions.think_s)
        think_s[first] = np.nan
        if self.loop == "open":
            return np.full_like(think_s, np.nan), np.zeros_like(think_s)
        cut_s = np.zeros_like(think_s)
        if self.max_think_s is not None:
            ledger.add_all(CHANGED + "think time cut (max_think_s)", sessions.request_id[think_s > self.max_think_s])
            cut_s = np.nan_to_num(think_s - np.minimum(think_s, self.max_think_s))
            think_s = np.minimum(think_s, self.max_think_s)
        return think_s, cut_s

    @override
    def window(self, trace: RequestTrace, ledger: Ledger) -> RequestTrace:
        """Keep the first `max_sessions` sessions, of these what the window leaves."""
        if self.max_sessions is not None and trace.request_count:
            _, first, session = np.unique(trace.session_id, return_index=True, return_inverse=True)
            inside = np.argsort(np.argsort(first))[session] < self.max_sessions
            trace = keep(trace, inside, "behind the window (max_sessions)", ledger)
        return super().window(trace, ledger)

    @override
    def jittered(self, trace: RequestTrace, seed: int) -> RequestTrace:
        """Draw when sessions start: gaps are exponential, keyed by seed and session."""
        _, first, session = np.unique(trace.session_id, return_index=True, return_inverse=True)
        gaps = -np.log(uniforms(seed, "session_file.starts", first.size)) / self.sessions_per_s
        starts_s = np.empty(first.size)
        starts_s[np.argsort(first)] = np.cumsum(gaps)  # in order of their nominal starts
        arrival_s = starts_s[session] + (trace.arrival_s - trace.arrival_s[first][session])
        drawn = replace(trace, arrival_s=arrival_s - arrival_s.min())
        return take(drawn, np.argsort(arrival_s, kind="stable"))


def _late(order: Ints, session_id: Ints) -> Ints:
    """Positions of requests that are earlier than one before them in their session; order: by session, then time."""
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    by_session = np.argsort(session_id, kind="stable")
    late = rank[by_session] < np.maximum.accumulate(rank[by_session])
    return by_session[late]
