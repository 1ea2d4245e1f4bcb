"""FIFO: evict the block that was admitted first."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import is_linked, make_lists, pop_oldest_free, push_newest, push_oldest, unlink


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Put the block last in the queue."""
    rows = links(a)
    push_newest(rows, rows.shape[0] - 1, block)


@njit
def touch(_a: PolicyState, _block: int, _time_s: float) -> None:
    """Change nothing: use does not count."""


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Put a parked block first in the queue: its turn has passed."""
    rows = links(a)
    if not is_linked(rows, block):
        push_oldest(rows, rows.shape[0] - 1, block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the first block of the queue that nobody uses."""
    rows = links(a)
    return pop_oldest_free(rows, rows.shape[0] - 1, pins)


class Fifo(EvictionPolicy):
    """First in, first out."""

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make one empty queue; its head is the last row."""
        a = allocate(block_count + 1, 2)
        make_lists(a, 1)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
