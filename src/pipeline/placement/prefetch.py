"""Prefetchers: when the blocks of a session are brought up into HBM before they are asked for.

A prefetcher sees arrivals and ends of requests, as an engine does, and names a time; the oracle is told more. What it
fetches goes over the same links as what requests wait for, first come first served.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from pipeline.spec import NonNegative, OpenRatio, Positive, Spec

NEVER = float("inf")


class Watch:
    """What a prefetcher keeps in mind during a simulation; this one does nothing."""

    def arrived(self, session: int, kind: int, now_s: float) -> float:  # noqa: ARG002
        """Take note that a request of a session arrived, of a class by number; return when to fetch its blocks."""
        return NEVER

    def ended(self, session: int, kind: int, now_s: float, next_s: float) -> float:  # noqa: ARG002
        """Take note that it ended; next_s: when the session's next one will arrive, as nobody knows."""
        return NEVER


class Prefetcher(Spec):
    """When to fetch, and what a request does that comes while blocks of its are still on their way.

    mode: wait_complete: it waits for them; best_effort: it takes what is there and computes the rest; timeout: it waits
    if they are due within timeout_s. watches_ends: whether `Watch.ended` is to be called.
    """

    watches_ends: ClassVar[bool] = False
    fetches: ClassVar[bool] = True

    name: str
    mode: Literal["best_effort", "wait_complete", "timeout"]
    timeout_s: Positive | None

    @model_validator(mode="after")
    def _has_a_timeout(self) -> Prefetcher:
        if (self.mode == "timeout") != (self.timeout_s is not None):
            raise ValueError(
                f"prefetch.timeout_s: given {self.timeout_s} with mode={self.mode}; expected seconds with timeout, "
                "null with any other"
            )
        return self

    @property
    def patience_s(self) -> float:
        """How far ahead what is on its way may be due for a request to wait for it."""
        if self.mode == "timeout" and self.timeout_s is not None:
            return self.timeout_s
        return NEVER if self.mode == "wait_complete" else 0.0

    def watch(self) -> Watch:
        """Begin a simulation."""
        return Watch()


class NoPrefetch(Prefetcher):
    """Nothing comes up before it is asked for."""

    fetches: ClassVar[bool] = False


class _QueueWatch(Watch):
    def arrived(self, session: int, kind: int, now_s: float) -> float:  # noqa: ARG002
        return now_s


class QueueAware(Prefetcher):
    """Fetch what a request will hit as soon as it stands in the engine's queue (CachedAttention, USENIX ATC'24)."""

    def watch(self) -> Watch:
        """Begin a simulation."""
        return _QueueWatch()


class _Means:
    """Exponentially weighted means by key."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._mean: dict[int, float] = {}

    def learn(self, key: int, value: float) -> None:
        mean = self._mean.get(key)
        self._mean[key] = value if mean is None else self._alpha * value + (1 - self._alpha) * mean

    def get(self, key: int) -> float:
        return self._mean.get(key, NEVER)


class _EwmaWatch(Watch):
    def __init__(self, alpha: float, lead_s: float) -> None:
        self._gaps, self._lead_s = _Means(alpha), lead_s
        self._last_s: dict[int, float] = {}

    def arrived(self, session: int, kind: int, now_s: float) -> float:  # noqa: ARG002
        if session in self._last_s:
            self._gaps.learn(session, now_s - self._last_s[session])
        self._last_s[session] = now_s
        return max(now_s, now_s + self._gaps.get(session) - self._lead_s)


class Ewma(Prefetcher):
    """Expect a session's next use one mean gap after its last; the mean is of that session, alpha of its newest gap.

    Fetch lead_s before. A session's first gap is not expected at all.
    """

    alpha: OpenRatio
    lead_s: NonNegative

    def watch(self) -> Watch:
        """Begin a simulation."""
        return _EwmaWatch(self.alpha, self.lead_s)


class _SessionWatch(Watch):
    def __init__(self, alpha: float, lead_s: float) -> None:
        self._thinks, self._lead_s = _Means(alpha), lead_s
        self._ended_s: dict[int, float] = {}

    def arrived(self, session: int, kind: int, now_s: float) -> float:
        if session in self._ended_s:
            self._thinks.learn(kind, now_s - self._ended_s.pop(session))
        return NEVER

    def ended(self, session: int, kind: int, now_s: float, next_s: float) -> float:  # noqa: ARG002
        self._ended_s[session] = now_s
        return max(now_s, now_s + self._thinks.get(kind) - self._lead_s)


class SessionAware(Prefetcher):
    """Expect a session to come back one mean think time after its answer; the mean is of all sessions of its class."""

    watches_ends: ClassVar[bool] = True

    alpha: OpenRatio
    lead_s: NonNegative

    def watch(self) -> Watch:
        """Begin a simulation."""
        return _SessionWatch(self.alpha, self.lead_s)


class _OracleWatch(Watch):
    def __init__(self, lead_s: float) -> None:
        self._lead_s = lead_s

    def ended(self, session: int, kind: int, now_s: float, next_s: float) -> float:  # noqa: ARG002
        return max(now_s, next_s - self._lead_s)


class Oracle(Prefetcher):
    """Know when each session comes back, and fetch lead_s before: no deployed prefetcher can."""

    watches_ends: ClassVar[bool] = True

    lead_s: NonNegative

    def watch(self) -> Watch:
        """Begin a simulation."""
        return _OracleWatch(self.lead_s)
