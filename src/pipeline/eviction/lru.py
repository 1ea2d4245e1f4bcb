"""LRU: evict the block whose last use is longest ago."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import is_linked, make_lists, pop_oldest_free, push_newest, unlink


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest."""
    rows = links(a)
    push_newest(rows, rows.shape[0] - 1, block)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest; a parked one waits for its release."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)
        push_newest(rows, rows.shape[0] - 1, block)


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest: it was in use until now."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)
    push_newest(rows, rows.shape[0] - 1, block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the oldest block that nobody uses."""
    rows = links(a)
    return pop_oldest_free(rows, rows.shape[0] - 1, pins)


class Lru(EvictionPolicy):
    """Least recently used. Being in use counts as use: the order is that of the last release."""

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make one empty list; its head is the last row."""
        a = allocate(block_count + 1, 2)
        make_lists(a, 1)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
