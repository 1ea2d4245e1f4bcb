"""SLRU: segments of LRU lists; a use lifts a block one segment up, and the lowest segment is evicted first.

Karedla et al., "Caching strategies to improve disk system performance", Computer 1994, in the variant of libCacheSim
0.3.5 (1a1a11a/libCacheSim): segments of equal size; a new block goes to the lowest one that has room, else to the
first; what a full segment cannot hold sinks one down, to the newest end. With four segments it is that library's SLRU.

SGLang's (sgl-project/sglang, evict_policy.py) differs: two classes, below two hits and from there on, neither of which
has a size, so that a block with two hits stays until no other is left.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import NEXT, Links, is_empty, is_linked, make_lists, pop_oldest_free, push_newest, unlink
from pipeline.spec import Count

MOST_SEGMENTS = 8
# Column of a block beside PREV and NEXT. The head of segment s is the s-th row after the blocks, its length, parked
# blocks included, the s-th scalar.
SEGMENT = 2
COLUMNS = 3
SEGMENTS, LIMIT = MOST_SEGMENTS, MOST_SEGMENTS + 1


@njit(cache=True)
def _head(a: PolicyState, rows: Links, segment: int) -> int:
    return rows.shape[0] - a.state[SEGMENTS] + segment


@njit(cache=True)
def _enter(a: PolicyState, rows: Links, segment: int, block: int) -> None:
    rows[block, SEGMENT] = segment
    a.state[segment] += 1
    push_newest(rows, _head(a, rows, segment), block)


@njit(cache=True)
def _settle(a: PolicyState, rows: Links, segment: int) -> None:
    """Let the oldest of a segment that is too long sink, and so on down; the first may be too long."""
    while segment > 0:
        head = _head(a, rows, segment)
        while a.state[segment] > a.state[LIMIT] and not is_empty(rows, head):
            block = rows[head, NEXT]
            unlink(rows, block)
            a.state[segment] -= 1
            _enter(a, rows, segment - 1, block)
        segment -= 1


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest of the lowest segment that has room."""
    segment = 0
    while segment < a.state[SEGMENTS] and a.state[segment] >= a.state[LIMIT]:
        segment += 1
    _enter(a, links(a), segment if segment < a.state[SEGMENTS] else 0, block)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Lift the block one segment up; a parked one waits for its release there."""
    rows = links(a)
    segment = rows[block, SEGMENT]
    above = min(segment + 1, a.state[SEGMENTS] - 1)
    a.state[segment] -= 1
    if is_linked(rows, block):
        unlink(rows, block)
        _enter(a, rows, above, block)
    else:
        rows[block, SEGMENT] = above
        a.state[above] += 1
    _settle(a, rows, above)


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest of its segment: it was in use until now."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)
    push_newest(rows, _head(a, rows, rows[block, SEGMENT]), block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    rows = links(a)
    a.state[rows[block, SEGMENT]] -= 1
    if is_linked(rows, block):
        unlink(rows, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the oldest block, of the lowest segment that has one, that nobody uses."""
    rows = links(a)
    for segment in range(a.state[SEGMENTS]):
        block = pop_oldest_free(rows, _head(a, rows, segment), pins)
        if block >= 0:
            a.state[segment] -= 1
            return int(block)
    return -1


class Slru(EvictionPolicy):
    """Segmented LRU: with two segments, a probationary and a protected one."""

    segment_count: Count = Field(le=MOST_SEGMENTS, description="segments, each of an equal share of the tier's blocks")

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make empty segments; their heads are the last rows."""
        a = allocate(block_count + self.segment_count, COLUMNS)
        make_lists(a, self.segment_count)
        a.state[SEGMENTS] = self.segment_count
        a.state[LIMIT] = capacity_blocks // self.segment_count
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
