"""S3-FIFO: a small queue for what is new, a main queue for what was used again, a ghost queue of what just left.

Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, in the variant of libCacheSim 0.3.5: until
the first eviction, blocks that do not fit in the small queue go to the main one.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import (
    NEXT,
    QUEUE,
    Links,
    is_empty,
    is_linked,
    join_queue,
    leave_queue,
    make_lists,
    push_oldest,
    unlink,
)
from pipeline.spec import Count, NonNegative, OpenRatio

# Column of a block beside PREV, NEXT and QUEUE: its uses since it entered that queue.
USES = 3
COLUMNS = 4
# Counted queues.
SMALL, MAIN, GHOST = 1, 2, 3
EVICTED = 4
SMALL_LIMIT, GHOST_LIMIT, PROMOTE_USES, MAX_USES = 5, 6, 7, 8
SMALL_RATIO = 0


@njit(cache=True)
def _join(a: PolicyState, rows: Links, queue: int, block: int, uses: int) -> None:
    rows[block, USES] = uses
    join_queue(a, rows, queue, block)


@njit(cache=True)
def _trim_ghosts(a: PolicyState, rows: Links) -> None:
    while a.state[GHOST] > a.state[GHOST_LIMIT]:
        leave_queue(a, rows, rows[rows.shape[0] - GHOST, NEXT])


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Admit the block to the small queue; to the main one if it left only recently."""
    rows = links(a)
    if rows[block, QUEUE] == GHOST:
        leave_queue(a, rows, block)
        _join(a, rows, MAIN, block, 0)
    elif a.state[EVICTED] == 0 and a.state[SMALL] >= a.state[SMALL_LIMIT]:
        _join(a, rows, MAIN, block, 0)
    else:
        _join(a, rows, SMALL, block, 0)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Count a use."""
    links(a)[block, USES] += 1


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Put a parked block first in its queue: its turn has passed."""
    rows = links(a)
    if not is_linked(rows, block):
        push_oldest(rows, rows.shape[0] - rows[block, QUEUE], block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    leave_queue(a, links(a), block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take from the small queue what was used too little, or from the main one if it is over its share."""
    rows = links(a)
    small, main = rows.shape[0] - SMALL, rows.shape[0] - MAIN
    a.state[EVICTED] = 1
    # The ghost of the block about to be admitted must outlive this eviction: so trim before adding, not after.
    _trim_ghosts(a, rows)
    block = -1
    while block < 0 and not (is_empty(rows, small) and is_empty(rows, main)):
        resident = a.state[SMALL] + a.state[MAIN]
        main_is_over = a.state[MAIN] > resident - int(resident * a.params[SMALL_RATIO])
        if is_empty(rows, small) or (main_is_over and not is_empty(rows, main)):
            block = _evict_main(a, rows, main, pins)
        else:
            block = _evict_small(a, rows, small, pins)
    return block


@njit(cache=True)
def _evict_small(a: PolicyState, rows: Links, small: int, pins: NDArray[np.int32]) -> int:
    """Take out the first block used too little, promoting those before it and parking those in use; -1 if none."""
    while not is_empty(rows, small):
        block = rows[small, NEXT]
        if rows[block, USES] >= a.state[PROMOTE_USES]:
            leave_queue(a, rows, block)
            _join(a, rows, MAIN, block, 0)
        elif pins[block] > 0:
            unlink(rows, block)
        else:
            leave_queue(a, rows, block)
            _join(a, rows, GHOST, block, 0)
            return int(block)
    return -1


@njit(cache=True)
def _evict_main(a: PolicyState, rows: Links, main: int, pins: NDArray[np.int32]) -> int:
    """Take out the first unused block, giving those before it another round and parking those in use; -1 if none."""
    while not is_empty(rows, main):
        block = rows[main, NEXT]
        uses = rows[block, USES]
        if uses > 0:
            leave_queue(a, rows, block)
            _join(a, rows, MAIN, block, min(uses, a.state[MAX_USES]) - 1)
        elif pins[block] > 0:
            unlink(rows, block)
        else:
            leave_queue(a, rows, block)
            return int(block)
    return -1


class S3Fifo(EvictionPolicy):
    """Small, main and ghost FIFO queues."""

    small_ratio: OpenRatio = Field(description="share of the small queue in what is resident")
    ghost_ratio: NonNegative = Field(description="ghosts remembered, as a share of the tier's capacity")
    promote_uses_count: Count = Field(description="uses in the small queue that lead to the main one")
    max_uses_count: Count = Field(description="uses that count in the main queue: its rounds before eviction")

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make three empty queues; their heads are the last rows."""
        a = allocate(block_count + 3, COLUMNS)
        make_lists(a, 3)
        a.state[SMALL_LIMIT] = max(int(capacity_blocks * self.small_ratio), 1)
        a.state[GHOST_LIMIT] = int(capacity_blocks * self.ghost_ratio)
        a.state[PROMOTE_USES] = self.promote_uses_count
        a.state[MAX_USES] = self.max_uses_count
        a.params[SMALL_RATIO] = self.small_ratio
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
