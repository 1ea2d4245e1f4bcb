"""ARC: a list of blocks used once and one of those used again; ghosts of both say which deserves more room.

Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003. There a victim is chosen knowing
what is about to come in; here a block that comes back moves the target after the eviction that made room for it, so
that the two differ by one eviction's delay. Ghosts are trimmed when a new block comes in.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import (
    NEXT,
    QUEUE,
    Links,
    is_linked,
    join_queue,
    leave_queue,
    make_lists,
    pop_oldest_free,
    push_newest,
    unlink,
)

COLUMNS = 3
# Counted queues.
ONCE, AGAIN, ONCE_GHOST, AGAIN_GHOST = 1, 2, 3, 4
CAPACITY = 5
TARGET = 0


@njit(cache=True)
def _come_back(a: PolicyState, ghost: int) -> None:
    """Move the room meant for blocks used once by how much rarer the ghosts of this kind are."""
    other = AGAIN_GHOST if ghost == ONCE_GHOST else ONCE_GHOST
    step = max(a.state[other] / a.state[ghost], 1.0)
    if ghost == ONCE_GHOST:
        a.params[TARGET] = min(a.params[TARGET] + step, a.state[CAPACITY])
    else:
        a.params[TARGET] = max(a.params[TARGET] - step, 0.0)


@njit(cache=True)
def _forget_oldest(a: PolicyState, rows: Links, ghost: int) -> None:
    if a.state[ghost] > 0:
        leave_queue(a, rows, rows[rows.shape[0] - ghost, NEXT])


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Admit the block to those used once; to those used again if it left only recently."""
    rows = links(a)
    queue = rows[block, QUEUE]
    if queue >= ONCE_GHOST:
        _come_back(a, queue)
        leave_queue(a, rows, block)
        join_queue(a, rows, AGAIN, block)
        return
    join_queue(a, rows, ONCE, block)
    once = a.state[ONCE] + a.state[ONCE_GHOST]
    if once > a.state[CAPACITY]:
        _forget_oldest(a, rows, ONCE_GHOST)
    elif once + a.state[AGAIN] + a.state[AGAIN_GHOST] > 2 * a.state[CAPACITY]:
        _forget_oldest(a, rows, AGAIN_GHOST)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest of those used again; a parked one waits for its release."""
    rows = links(a)
    if is_linked(rows, block):
        leave_queue(a, rows, block)
        join_queue(a, rows, AGAIN, block)
    else:
        a.state[rows[block, QUEUE]] -= 1
        a.state[AGAIN] += 1
        rows[block, QUEUE] = AGAIN


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Make the block the newest of its list: it was in use until now."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)
    push_newest(rows, rows.shape[0] - rows[block, QUEUE], block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block; it leaves no ghost."""
    leave_queue(a, links(a), block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the oldest block used once if these have more than their room, else the oldest used again."""
    rows = links(a)
    queue = ONCE if a.state[ONCE] > a.params[TARGET] else AGAIN
    block = pop_oldest_free(rows, rows.shape[0] - queue, pins)
    if block < 0:
        queue = ONCE + AGAIN - queue
        block = pop_oldest_free(rows, rows.shape[0] - queue, pins)
    if block >= 0:
        leave_queue(a, rows, block)
        join_queue(a, rows, ONCE_GHOST if queue == ONCE else AGAIN_GHOST, block)
    return int(block)


class Arc(EvictionPolicy):
    """Adaptive replacement cache; remembers as many blocks again as the tier holds."""

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make four empty lists; their heads are the last rows."""
        a = allocate(block_count + 4, COLUMNS)
        make_lists(a, 4)
        a.state[CAPACITY] = capacity_blocks
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)
