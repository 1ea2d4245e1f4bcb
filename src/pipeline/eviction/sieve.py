"""SIEVE: a hand goes from old to new, spares what was used since it last came by, and evicts what was not.

Zhang et al., "SIEVE is simpler than LRU", NSDI 2024.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import (
    NEXT,
    PREV,
    Links,
    is_empty,
    is_linked,
    link_between,
    make_lists,
    push_newest,
    unlink,
)

VISITED = 2
COLUMNS = 3
HAND = 0


@njit(cache=True)
def _take_out(a: PolicyState, rows: Links, block: int) -> None:
    if a.state[HAND] == block:
        a.state[HAND] = rows[block, NEXT]
    unlink(rows, block)


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Put the block last in the queue, not yet visited."""
    rows = links(a)
    rows[block, VISITED] = 0
    push_newest(rows, rows.shape[0] - 1, block)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Mark the block as visited."""
    links(a)[block, VISITED] = 1


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Put a parked block under the hand: its turn has passed."""
    rows = links(a)
    if is_linked(rows, block):
        return
    head, hand = rows.shape[0] - 1, a.state[HAND]
    after = rows[head, NEXT] if hand == head else hand
    link_between(rows, rows[after, PREV], block, after)
    a.state[HAND] = block


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    rows = links(a)
    if is_linked(rows, block):
        _take_out(a, rows, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Move the hand on to the first block neither visited nor in use, and take it out."""
    rows = links(a)
    head = rows.shape[0] - 1
    while not is_empty(rows, head):
        block = a.state[HAND]
        if block == head:
            block = rows[head, NEXT]
        if rows[block, VISITED] != 0:
            rows[block, VISITED] = 0
            a.state[HAND] = rows[block, NEXT]
            continue
        a.state[HAND] = block
        _take_out(a, rows, block)
        if pins[block] == 0:
            return int(block)
    return -1


class Sieve(EvictionPolicy):
    """A queue with a hand and one bit per block."""

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make one empty queue; its head is the last row, where the hand rests when it has gone round."""
        a = allocate(block_count + 1, COLUMNS)
        make_lists(a, 1)
        a.state[HAND] = block_count
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
