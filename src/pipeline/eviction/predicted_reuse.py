"""Predicted reuse, as shipped: time since the last touch plus a constant gap; the highest is evicted.

As arXiv:2609.16215 ("Where Should the KV Cache Live?") describes its reuse predictor. What all blocks share does not
order them: this is recency. It stands here so that anyone can see that its event logs are those of lru.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, compile_functions
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.heaps import allocate_heaps, is_in, new_ticket, pop_first_free, put, take_out
from pipeline.spec import NonNegative

GAP_S = 0


@njit(cache=True)
def _renew(a: PolicyState, block: int, time_s: float) -> None:
    # (now - last touch) + gap is highest where last touch - gap is lowest, whenever one asks.
    new_ticket(a, block)
    put(a, 0, block, time_s - a.params[GAP_S])


@njit
def insert(a: PolicyState, block: int, time_s: float) -> None:
    """Count a touch."""
    _renew(a, block, time_s)


@njit
def touch(a: PolicyState, block: int, time_s: float) -> None:
    """Count a touch; a parked block waits for its release."""
    if is_in(a, 0, block):
        _renew(a, block, time_s)


@njit
def release(a: PolicyState, block: int, time_s: float) -> None:
    """Count a touch: the block was in use until now."""
    _renew(a, block, time_s)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    take_out(a, 0, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the block of the highest prediction that nobody uses."""
    return pop_first_free(a, 0, pins)


class PredictedReuse(EvictionPolicy):
    """Time since the last touch plus a constant gap."""

    gap_s: NonNegative = Field(description="the same for all blocks, so that it changes nothing")

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make an empty heap."""
        a = allocate_heaps(block_count, 1)
        a.params[GAP_S] = self.gap_s
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
