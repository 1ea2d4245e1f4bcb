"""LRU: evict the block whose last use is longest ago."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyArrays, PolicyFunctions, allocate, compile_functions
from pipeline.eviction.lists import NEXT, OUT, is_linked, make_empty, pop_free, push_newest, unlink


@njit
def insert(a: PolicyArrays, block: int, time_s: float) -> None:
    """Make it the newest."""
    push_newest(a.links, a.links.shape[0] - 1, block)


@njit
def touch(a: PolicyArrays, block: int, time_s: float) -> None:
    """Make it the newest; a parked block stays parked until it is released."""
    if is_linked(a.links, block):
        unlink(a.links, block)
        push_newest(a.links, a.links.shape[0] - 1, block)


@njit
def release(a: PolicyArrays, block: int, time_s: float) -> None:
    """Make it the newest: it was in use until now."""
    if is_linked(a.links, block):
        unlink(a.links, block)
    push_newest(a.links, a.links.shape[0] - 1, block)


@njit
def remove(a: PolicyArrays, block: int) -> None:
    """Forget it."""
    if is_linked(a.links, block):
        unlink(a.links, block)


@njit
def victim(a: PolicyArrays, pins: NDArray[np.int32], time_s: float) -> int:
    """Take out the oldest block that is not in use."""
    return pop_free(a.links, a.links.shape[0] - 1, pins)


class Lru(EvictionPolicy):
    """Least recently used; being in use counts as use, so the order is that of the last release."""

    def arrays(self, block_count: int, capacity_blocks: int) -> PolicyArrays:  # noqa: ARG002
        """Return one empty list; its head is the last row."""
        a = allocate(block_count + 1, 2)
        a.links[:, NEXT] = OUT
        make_empty(a.links, block_count)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
