"""Leaf-aware LRU: evict the block used longest ago of those that no resident block follows in a chain.

A block is of use only with all before it, so one in the middle goes only when all that may go are in the middle; then
the oldest of them goes. Blocks lie in one list by last use. Those that `victim` met and had to spare wait in a second
one, also by last use, and come back once nothing resident follows them: they are older than nearly all of the first,
so that their place in it is found in a step or two from its end.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import (
    EvictionPolicy,
    PolicyFunctions,
    PolicyState,
    allocate,
    compile_functions,
    links,
    required,
    scores,
)
from pipeline.eviction.facts import NONE, BlockFacts
from pipeline.eviction.lists import (
    NEXT,
    PREV,
    Links,
    is_empty,
    is_linked,
    link_between,
    make_lists,
    pop_oldest_free,
    push_newest,
    unlink,
)

# Columns of a block beside PREV and NEXT: the block before it, how many resident ones follow, whether it was spared.
PARENT, CHILDREN, SPARED = 2, 3, 4
COLUMNS = 5
CLOCK = 0  # operations so far; the score of a block is its clock at the last use


@njit(cache=True)
def _renew(a: PolicyState, rows: Links, block: int) -> None:
    """Make the block the newest."""
    if is_linked(rows, block):
        unlink(rows, block)
    a.state[CLOCK] += 1
    scores(a)[block, 0] = a.state[CLOCK]
    rows[block, SPARED] = 0
    push_newest(rows, rows.shape[0] - 1, block)


@njit(cache=True)
def _spare(a: PolicyState, rows: Links, block: int) -> None:
    """Move the block to those spared, by last use, searching from the newest."""
    last_use = scores(a)
    unlink(rows, block)
    head = rows.shape[0] - 2
    after = head
    while rows[after, PREV] != head and last_use[rows[after, PREV], 0] > last_use[block, 0]:
        after = rows[after, PREV]
    link_between(rows, rows[after, PREV], block, after)
    rows[block, SPARED] = 1


@njit(cache=True)
def _come_back(a: PolicyState, rows: Links, block: int) -> None:
    """Move the block from those spared to the others, by last use, searching from the oldest."""
    last_use = scores(a)
    unlink(rows, block)
    head = rows.shape[0] - 1
    before = head
    while rows[before, NEXT] != head and last_use[rows[before, NEXT], 0] < last_use[block, 0]:
        before = rows[before, NEXT]
    link_between(rows, before, block, rows[before, NEXT])
    rows[block, SPARED] = 0


@njit(cache=True)
def _leave(a: PolicyState, rows: Links, block: int) -> None:
    """Tell the parent that the block has left."""
    rows[block, SPARED] = 0
    parent = rows[block, PARENT]
    if parent != NONE:
        rows[parent, CHILDREN] -= 1
        if rows[parent, CHILDREN] == 0 and rows[parent, SPARED] != 0 and is_linked(rows, parent):
            _come_back(a, rows, parent)


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest, and its parent one with a child."""
    rows = links(a)
    if rows[block, PARENT] != NONE:
        rows[rows[block, PARENT], CHILDREN] += 1
    _renew(a, rows, block)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest; a parked one waits for its release."""
    rows = links(a)
    if is_linked(rows, block):
        _renew(a, rows, block)


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest: it was in use until now."""
    _renew(a, links(a), block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)
    _leave(a, rows, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the oldest block without a resident child that nobody uses; where there is none, the oldest of all."""
    rows = links(a)
    head = rows.shape[0] - 1
    while not is_empty(rows, head):
        block = rows[head, NEXT]
        if pins[block] > 0:
            unlink(rows, block)
        elif rows[block, CHILDREN] > 0:
            _spare(a, rows, block)
        else:
            unlink(rows, block)
            _leave(a, rows, block)
            return int(block)
    block = pop_oldest_free(rows, head - 1, pins)
    if block >= 0:
        _leave(a, rows, block)
    return int(block)


class LeafAwareLru(EvictionPolicy):
    """Least recently used among the ends of chains. A child counts while it is in the same tier, in use or not."""

    needs_facts: ClassVar[bool] = True

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make two empty lists; their heads are the last rows."""
        a = allocate(block_count + 2, COLUMNS, block_count)
        make_lists(a, 2)
        _adopt(a, required(facts, block_count).parent[:block_count])
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)


@njit(cache=True)
def _adopt(a: PolicyState, parent: NDArray[np.int32]) -> None:
    links(a)[: parent.size, PARENT] = parent
