"""Belady: evict the block whose next use is farthest away. It is told the future, so it is no policy to deploy.

Belady, "A study of replacement algorithms for virtual-storage computers", IBM Systems Journal 1966. Of unit-size blocks
looked up in a fixed order nothing misses less. In a simulation it is a reference, not a bound: the times of use are the
arrivals that the trace names, a prompt's hit ends at the first block that is missing, and a tier is one of several.

Each touch or admission takes up the block's first use that is due. A use that has not come patience_s after its time
has gone elsewhere (another instance, a tier above) and is no longer waited for; one that is late, as that of a request
in a queue, still is. Among equals, as the blocks of one prompt are, the one let go of longest ago leaves.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from pipeline.eviction.base import (
    EvictionPolicy,
    PolicyFunctions,
    PolicyState,
    compile_functions,
    links,
    required,
    use_s,
)
from pipeline.eviction.facts import BlockFacts, Ints
from pipeline.eviction.heaps import allocate_heaps, first, is_in, key_of, new_ticket, put, take_out
from pipeline.spec import NonNegative

# Columns: the first use of a block that is still awaited, and where its uses end, in `use_s`.
NEXT_USE, END = 0, 1
COLUMNS = 2
FARTHEST, SOONEST = 0, 1
PATIENCE_S = 0


@njit(cache=True)
def _awaited_s(a: PolicyState, block: int, time_s: float) -> float:
    """Skip the uses that went elsewhere; return the time of the next one, infinity if there is none."""
    rows, uses = links(a), use_s(a)
    i, end = rows[block, NEXT_USE], rows[block, END]
    while i < end and uses[i] < time_s - a.params[PATIENCE_S]:
        i += 1
    rows[block, NEXT_USE] = i
    return float(uses[i]) if i < end else np.inf


@njit(cache=True)
def _take_up(a: PolicyState, block: int, time_s: float) -> None:
    if _awaited_s(a, block, time_s) <= time_s:
        links(a)[block, NEXT_USE] += 1


@njit(cache=True)
def _place(a: PolicyState, block: int, time_s: float) -> None:
    next_s = _awaited_s(a, block, time_s)
    put(a, FARTHEST, block, -next_s)
    if next_s < np.inf:
        put(a, SOONEST, block, next_s)
    else:
        take_out(a, SOONEST, block)


@njit(cache=True)
def _renew(a: PolicyState, block: int, time_s: float) -> None:
    new_ticket(a, block)
    _place(a, block, time_s)


@njit(cache=True)
def _pop(a: PolicyState, pins: NDArray[np.int32]) -> int:
    """Take out the first of the farthest that nobody uses, and those in use before it, from both heaps."""
    while True:
        block = first(a, FARTHEST)
        if block < 0:
            return block
        take_out(a, FARTHEST, block)
        take_out(a, SOONEST, block)
        if pins[block] == 0:
            return block


@njit
def insert(a: PolicyState, block: int, time_s: float) -> None:
    """Take up the use that brings the block in."""
    _take_up(a, block, time_s)
    _renew(a, block, time_s)


@njit
def touch(a: PolicyState, block: int, time_s: float) -> None:
    """Take up the use; a parked block waits for its release."""
    _take_up(a, block, time_s)
    if is_in(a, FARTHEST, block):
        _renew(a, block, time_s)


@njit
def release(a: PolicyState, block: int, time_s: float) -> None:
    """Put the block back, the last among its equals to leave."""
    _renew(a, block, time_s)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Take the block out."""
    take_out(a, FARTHEST, block)
    take_out(a, SOONEST, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], time_s: float) -> int:
    """Take out the block, of those that nobody uses, whose next use is farthest away."""
    block = first(a, SOONEST)
    while block >= 0 and key_of(a, SOONEST, block) < time_s - a.params[PATIENCE_S]:
        _place(a, block, time_s)
        block = first(a, SOONEST)
    return _pop(a, pins)


class Belady(EvictionPolicy):
    """Farthest next use first, from the trace."""

    needs_facts: ClassVar[bool] = True
    patience_s: NonNegative = Field(description="how late a use may be before it is taken to have gone elsewhere")

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make two empty heaps, the farthest first and the soonest first."""
        known = required(facts, block_count)
        a = allocate_heaps(block_count, 2, COLUMNS, facts=known)
        a.params[PATIENCE_S] = self.patience_s
        _note_uses(a, known.use_offset)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)


@njit(cache=True)
def _note_uses(a: PolicyState, use_offset: Ints) -> None:
    rows = links(a)
    for block in range(rows.shape[0]):
        rows[block, NEXT_USE], rows[block, END] = use_offset[block], use_offset[block + 1]
