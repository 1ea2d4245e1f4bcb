"""EWMA next touch: predict a block's next touch from the mean of its gaps, and evict the one predicted latest.

The mean is exponentially weighted: alpha of the newest gap, the rest of the mean before. A gap runs from the last touch
or release to the next touch, also over an absence: what is known of a block stays known when it leaves the tier.
Before its second touch a block is predicted horizon_s after its first.

A block is overdue once its predicted touch has passed, and will then be overdue_ratio times as late again as it is by
now: with 0 it is expected at any moment, and leaves after all that are not overdue, so that a burst that is over keeps
its place; with 1 it leaves before what is expected sooner than it is late. Among overdue blocks the latest goes first.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, compile_functions, scores
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.heaps import allocate_heaps, first, is_in, key_of, new_ticket, put, take_out
from pipeline.spec import NonNegative, Positive, Ratio

# Scores of a block: the mean of its gaps, or what says that there is none yet; its last touch or release.
MEAN_S, LAST_S = 0, 1
MORE_SCORES = 2
UNSEEN, ONCE = -2.0, -1.0
# Heaps: both hold the same blocks, by predicted touch.
LATEST, EARLIEST = 0, 1
ALPHA, HORIZON_S, OVERDUE = 0, 1, 2


@njit(cache=True)
def _learn(a: PolicyState, block: int, time_s: float) -> None:
    seen = scores(a)
    mean_s, gap_s = seen[block, MEAN_S], time_s - seen[block, LAST_S]
    if mean_s == UNSEEN:
        seen[block, MEAN_S] = ONCE
    elif mean_s == ONCE:
        seen[block, MEAN_S] = gap_s
    else:
        seen[block, MEAN_S] = a.params[ALPHA] * gap_s + (1.0 - a.params[ALPHA]) * mean_s
    seen[block, LAST_S] = time_s


@njit(cache=True)
def _place(a: PolicyState, block: int) -> None:
    mean_s = scores(a)[block, MEAN_S]
    due_s = scores(a)[block, LAST_S] + (mean_s if mean_s >= 0.0 else a.params[HORIZON_S])
    new_ticket(a, block)
    put(a, LATEST, block, -due_s)
    put(a, EARLIEST, block, due_s)


@njit
def insert(a: PolicyState, block: int, time_s: float) -> None:
    """Count a touch."""
    _learn(a, block, time_s)
    _place(a, block)


@njit
def touch(a: PolicyState, block: int, time_s: float) -> None:
    """Count a touch; a parked block waits for its release."""
    _learn(a, block, time_s)
    if is_in(a, LATEST, block):
        _place(a, block)


@njit
def release(a: PolicyState, block: int, time_s: float) -> None:
    """Let the gap begin anew: the block was in use until now."""
    scores(a)[block, LAST_S] = time_s
    _place(a, block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Take the block out."""
    take_out(a, LATEST, block)
    take_out(a, EARLIEST, block)


@njit(cache=True)
def _last_expected(a: PolicyState, time_s: float) -> int:
    """Name the block whose touch is predicted latest, in use or not; -1 if there is none."""
    latest, earliest = first(a, LATEST), first(a, EARLIEST)
    if latest < 0:
        return latest
    due_s = key_of(a, EARLIEST, earliest)
    if due_s < time_s and time_s + a.params[OVERDUE] * (time_s - due_s) >= -key_of(a, LATEST, latest):
        return earliest
    return latest


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], time_s: float) -> int:
    """Take out the block, of those that nobody uses, whose touch is predicted latest."""
    block = _last_expected(a, time_s)
    while block >= 0:
        take_out(a, LATEST, block)
        take_out(a, EARLIEST, block)
        if pins[block] == 0:
            break
        block = _last_expected(a, time_s)
    return block


class Ewma(EvictionPolicy):
    """Latest predicted next touch first."""

    alpha_ratio: Ratio = Field(gt=0, description="weight of the newest gap")
    horizon_s: Positive = Field(description="gap of a block that was touched once")
    overdue_ratio: NonNegative = Field(
        description="how much later an overdue block will be, as a share of how late it is"
    )

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make two empty heaps, the latest first and the earliest first."""
        a = allocate_heaps(block_count, 2, more_scores=MORE_SCORES)
        a.params[ALPHA], a.params[HORIZON_S], a.params[OVERDUE] = self.alpha_ratio, self.horizon_s, self.overdue_ratio
        _forget_all(a)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)


@njit(cache=True)
def _forget_all(a: PolicyState) -> None:
    scores(a)[:, MEAN_S] = UNSEEN
