"""Binary heaps of blocks that know where each block lies; the lowest key comes first, among equals the lowest ticket.

A policy may keep several heaps, h = 0, 1, ...: each takes two columns of `links` and one of `scores`; the last column
of `scores` holds the tickets, numbers that rise with every use. allocate_heaps makes such a state.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import PolicyState, allocate, links, scores
from pipeline.eviction.facts import BlockFacts

OUT = -1
TICKETS = 0
LENGTH = 1
"""Scalars: tickets given out; from LENGTH on, the length of each heap."""


def allocate_heaps(
    block_count: int, heap_count: int, more_columns: int = 0, more_scores: int = 0, facts: BlockFacts | None = None
) -> PolicyState:
    """Make a state with empty heaps; the policy's own columns come first, its own scores too."""
    a = allocate(block_count, more_columns + 2 * heap_count, block_count, more_scores + heap_count + 1, facts)
    _empty(a, heap_count)
    return a


@njit(cache=True)
def _empty(a: PolicyState, heap_count: int) -> None:
    for h in range(heap_count):
        links(a)[:, _place(a, h)] = OUT


@njit(cache=True)
def _place(a: PolicyState, h: int) -> int:
    """Column of the place of a block in heap h; the one before holds the block at a place. The last heaps come last."""
    return int(a.links_columns - 1 - 2 * h)


@njit(cache=True)
def _key(a: PolicyState, h: int) -> int:
    return int(a.scores_columns - 2 - h)


@njit(cache=True)
def new_ticket(a: PolicyState, block: int) -> None:
    """Give the block the highest ticket: put it in its heaps again after this."""
    a.state[TICKETS] += 1
    scores(a)[block, a.scores_columns - 1] = a.state[TICKETS]


@njit(cache=True)
def is_in(a: PolicyState, h: int, block: int) -> bool:
    """Say whether the block is in heap h."""
    return links(a)[block, _place(a, h)] != OUT


@njit(cache=True)
def first(a: PolicyState, h: int) -> int:
    """Name the first block of heap h, -1 if it is empty."""
    return int(links(a)[0, _place(a, h) - 1]) if a.state[LENGTH + h] > 0 else OUT


@njit(cache=True)
def key_of(a: PolicyState, h: int, block: int) -> float:
    """Key of the block in heap h, of use while it is there."""
    return float(scores(a)[block, _key(a, h)])


@njit(cache=True)
def put(a: PolicyState, h: int, block: int, key: float) -> None:
    """Put the block into heap h, or to where its new key and ticket belong."""
    place = _place(a, h)
    at = links(a)[block, place]
    if at == OUT:
        at = a.state[LENGTH + h]
        a.state[LENGTH + h] += 1
    scores(a)[block, _key(a, h)] = key
    _set(a, place, at, block)
    _sink(a, h, _rise(a, h, at))


@njit(cache=True)
def take_out(a: PolicyState, h: int, block: int) -> None:
    """Take the block out of heap h, if it is there."""
    rows, place = links(a), _place(a, h)
    at = rows[block, place]
    if at == OUT:
        return
    a.state[LENGTH + h] -= 1
    end = a.state[LENGTH + h]
    rows[block, place] = OUT
    if at != end:
        _set(a, place, at, rows[end, place - 1])
        _sink(a, h, _rise(a, h, at))


@njit(cache=True)
def pop_first_free(a: PolicyState, h: int, pins: NDArray[np.int32]) -> int:
    """Take out the first block of heap h that nobody uses, and those in use before it; -1 if there is none."""
    while a.state[LENGTH + h] > 0:
        block = first(a, h)
        take_out(a, h, block)
        if pins[block] == 0:
            return block
    return OUT


@njit(cache=True)
def _set(a: PolicyState, place: int, at: int, block: int) -> None:
    rows = links(a)
    rows[at, place - 1] = block
    rows[block, place] = at


@njit(cache=True)
def _precedes(a: PolicyState, h: int, block: int, other: int) -> bool:
    values, key = scores(a), _key(a, h)
    if values[block, key] != values[other, key]:
        return bool(values[block, key] < values[other, key])
    ticket = values.shape[1] - 1
    return bool(values[block, ticket] < values[other, ticket])


@njit(cache=True)
def _rise(a: PolicyState, h: int, at: int) -> int:
    """Swap the block at a place with those above while it precedes them; return its place."""
    rows, place = links(a), _place(a, h)
    block = rows[at, place - 1]
    while at > 0:
        above = (at - 1) // 2
        if not _precedes(a, h, block, rows[above, place - 1]):
            break
        _set(a, place, at, rows[above, place - 1])
        at = above
    _set(a, place, at, block)
    return at


@njit(cache=True)
def _sink(a: PolicyState, h: int, at: int) -> None:
    """Swap the block at a place with the first of those below while they precede it."""
    rows, place, length = links(a), _place(a, h), a.state[LENGTH + h]
    block = rows[at, place - 1]
    while 2 * at + 1 < length:
        below = 2 * at + 1
        if below + 1 < length and _precedes(a, h, rows[below + 1, place - 1], rows[below, place - 1]):
            below += 1
        if not _precedes(a, h, rows[below, place - 1], block):
            break
        _set(a, place, at, rows[below, place - 1])
        at = below
    _set(a, place, at, block)
