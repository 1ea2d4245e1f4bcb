"""LMCache cost-aware: recompute tokens per byte, divided by 1 + age / half-life; the lowest is evicted.

LMCache/LMCache, pull request 4459 (open in August 2026), cost_aware_policy.py: a chunk costs what a request would have
to compute from it on, so that the first chunks of a prompt are dear and the last cheap. Hits renew its age but not its
cost, and what is known of it goes when it leaves. Its smoothing of the cost (alpha 0.2) is left out: it acts only when
a chunk is stored a second time while it is there, which does not happen here.

All blocks have the same bytes and tokens, so both drop out. The cost is the number of blocks from this one to the end
of the chain of the last request due when the block came in. Blocks of equal cost lie in one list by age, the order of
which time does not change, so a victim is the best of the oldest of each list: exact, without a scan of all blocks.
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
    allocate,
    compile_functions,
    links,
    required,
    scores,
    tail_blocks,
    use_s,
)
from pipeline.eviction.facts import BlockFacts, Ints
from pipeline.eviction.lists import NEXT, Links, is_linked, make_lists, push_newest, unlink
from pipeline.spec import Positive

# Columns of a block beside PREV and NEXT: where its uses begin and end in `use_s`; its list, which is the head's row.
# The list of cost c is headed by the c-th row after the blocks.
USES, END, LIST = 2, 3, 4
COLUMNS = 5
LISTS = 0
HALF_LIFE_S, OLDEST_S = 0, 1
LAST_S = 0


@njit(cache=True)
def _cost_blocks(a: PolicyState, rows: Links, block: int, time_s: float) -> int:
    """Blocks of the chain from this one on, at its last use up to now; at its first if none was due yet."""
    uses, low, high = use_s(a), rows[block, USES], rows[block, END]
    while high - low > 1:
        middle = (low + high) // 2
        if uses[middle] <= time_s:
            low = middle
        else:
            high = middle
    return int(tail_blocks(a)[low])


@njit(cache=True)
def _renew(a: PolicyState, rows: Links, block: int, time_s: float) -> None:
    """Make the block the newest of its list."""
    if is_linked(rows, block):
        unlink(rows, block)
    scores(a)[block, LAST_S] = time_s
    push_newest(rows, rows[block, LIST], block)


@njit
def insert(a: PolicyState, block: int, time_s: float) -> None:
    """Note what the block costs."""
    rows = links(a)
    rows[block, LIST] = rows.shape[0] - a.state[LISTS] + _cost_blocks(a, rows, block, time_s) - 1
    _renew(a, rows, block, time_s)


@njit
def touch(a: PolicyState, block: int, time_s: float) -> None:
    """Renew the block's age; a parked one waits for its release."""
    rows = links(a)
    if is_linked(rows, block):
        _renew(a, rows, block, time_s)


@njit
def release(a: PolicyState, block: int, time_s: float) -> None:
    """Renew the block's age: it was in use until now."""
    _renew(a, links(a), block, time_s)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)


@njit(cache=True)
def _lowest(a: PolicyState, rows: Links, time_s: float) -> int:
    """Name the block of the lowest score, among equals the one used longest ago; -1 if there is none.

    By rising cost, up to where a block as old as the oldest would score higher than what was found. A pass over all
    lists says how old that is; blocks only get newer, so it bounds them until the next such pass.
    """
    last_s, half_life_s, head_count = scores(a), a.params[HALF_LIFE_S], a.state[LISTS]
    first_head = rows.shape[0] - head_count
    found, least, least_last_s, oldest_s = -1, np.inf, np.inf, np.inf
    for cost in range(1, head_count + 1):
        if cost / (1.0 + (time_s - a.params[OLDEST_S]) / half_life_s) > least:
            return found
        block = rows[first_head + cost - 1, NEXT]
        if block == first_head + cost - 1:
            continue
        block_last_s = last_s[block, LAST_S]
        score = cost / (1.0 + (time_s - block_last_s) / half_life_s)
        if score < least or (score == least and block_last_s < least_last_s):
            found, least, least_last_s = int(block), score, block_last_s
        oldest_s = min(oldest_s, block_last_s)
    a.params[OLDEST_S] = oldest_s if found >= 0 else -np.inf
    return found


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], time_s: float) -> int:
    """Take out the block of the lowest score that nobody uses."""
    rows = links(a)
    block = _lowest(a, rows, time_s)
    while block >= 0:
        unlink(rows, block)
        if pins[block] == 0:
            break
        block = _lowest(a, rows, time_s)
    return block


class LmcacheCostAware(EvictionPolicy):
    """Lowest cost to recompute, decayed by age, first."""

    needs_facts: ClassVar[bool] = True
    half_life_s: Positive = Field(description="age at which a block counts half")

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make an empty list per cost; their heads are the last rows."""
        known = required(facts, block_count)
        list_count = int(known.tail_blocks.max(initial=1)) if block_count else 1
        a = allocate(block_count + list_count, COLUMNS, block_count + 1, 1, known)
        make_lists(a, list_count)
        a.state[LISTS] = list_count
        a.params[HALF_LIFE_S], a.params[OLDEST_S] = self.half_life_s, -np.inf
        _note_uses(a, known.use_offset, block_count)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)


@njit(cache=True)
def _note_uses(a: PolicyState, use_offset: Ints, block_count: int) -> None:
    rows = links(a)
    for block in range(block_count):
        rows[block, USES], rows[block, END] = use_offset[block], use_offset[block + 1]
