"""LFU: evict the block used least often since it was admitted; among equals, the one that got there first.

Blocks of equal use form a bucket: a row beyond the blocks, head of the list of its blocks, in a chain of buckets by
rising count. A block in use that `victim` met is out of its bucket's list but still belongs to the bucket, so that it
finds its place again. All operations take constant time, but that a victim steps over buckets all of whose blocks
are in use.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import (
    Links,
    is_empty,
    is_linked,
    make_empty,
    make_lists,
    pop_oldest_free,
    push_newest,
    push_oldest,
    unlink,
)

# Columns of a block and of a bucket beside PREV and NEXT. The last row is the end of the chain on both sides.
BUCKET = 2
BELOW, ABOVE, USES, MEMBERS = 2, 3, 4, 5
COLUMNS = 6
# Scalars: the first bucket row never used; the last one given back (a stack through ABOVE), 0 if there is none.
FRESH, FREE = 0, 1


@njit(cache=True)
def _new_bucket(a: PolicyState, rows: Links, below: int, uses: int) -> int:
    bucket = a.state[FREE]
    if bucket > 0:
        a.state[FREE] = rows[bucket, ABOVE]
    else:
        bucket = a.state[FRESH]
        a.state[FRESH] += 1
    above = rows[below, ABOVE]
    rows[bucket, BELOW], rows[bucket, ABOVE] = below, above
    rows[below, ABOVE], rows[above, BELOW] = bucket, bucket
    rows[bucket, USES], rows[bucket, MEMBERS] = uses, 0
    make_empty(rows, bucket)
    return int(bucket)


@njit(cache=True)
def _leave_bucket(a: PolicyState, rows: Links, block: int) -> None:
    bucket = rows[block, BUCKET]
    rows[bucket, MEMBERS] -= 1
    if rows[bucket, MEMBERS] == 0:
        below, above = rows[bucket, BELOW], rows[bucket, ABOVE]
        rows[below, ABOVE], rows[above, BELOW] = above, below
        rows[bucket, ABOVE] = a.state[FREE]
        a.state[FREE] = bucket


@njit(cache=True)
def _bucket_above(a: PolicyState, rows: Links, below: int, uses: int) -> int:
    """Find or make the bucket of `uses`, which belongs right above `below`."""
    above = rows[below, ABOVE]
    if above != rows.shape[0] - 1 and rows[above, USES] == uses:
        return int(above)
    return _new_bucket(a, rows, below, uses)


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Count one use."""
    rows = links(a)
    bucket = _bucket_above(a, rows, rows.shape[0] - 1, 1)
    rows[block, BUCKET] = bucket
    rows[bucket, MEMBERS] += 1
    push_newest(rows, bucket, block)


@njit
def touch(a: PolicyState, block: int, _time_s: float) -> None:
    """Count one use more; a parked block stays parked."""
    rows = links(a)
    bucket = rows[block, BUCKET]
    target = _bucket_above(a, rows, bucket, rows[bucket, USES] + 1)
    _leave_bucket(a, rows, block)
    rows[block, BUCKET] = target
    rows[target, MEMBERS] += 1
    if is_linked(rows, block):
        unlink(rows, block)
        push_newest(rows, target, block)


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Put a parked block first in its bucket: its turn has passed."""
    rows = links(a)
    if not is_linked(rows, block):
        push_oldest(rows, rows[block, BUCKET], block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block and its count."""
    rows = links(a)
    if is_linked(rows, block):
        unlink(rows, block)
    _leave_bucket(a, rows, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Take out the first block, of the lowest bucket that has one, that nobody uses."""
    rows = links(a)
    end = rows.shape[0] - 1
    bucket = rows[end, ABOVE]
    while bucket != end:
        if not is_empty(rows, bucket):
            block = pop_oldest_free(rows, bucket, pins)
            if block >= 0:
                _leave_bucket(a, rows, block)
                return int(block)
        bucket = rows[bucket, ABOVE]
    return -1


class Lfu(EvictionPolicy):
    """Least frequently used, counted while a block is in the tier, exactly."""

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make an empty chain: a row per block, as many buckets as blocks fit plus one for a move, and the end."""
        bucket_count = min(block_count, capacity_blocks) + 1
        a = allocate(block_count + bucket_count + 1, COLUMNS)
        make_lists(a, bucket_count + 1)
        a.state[FRESH] = block_count
        _close_chain(a)
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)


@njit(cache=True)
def _close_chain(a: PolicyState) -> None:
    rows = links(a)
    end = rows.shape[0] - 1
    rows[end, BELOW], rows[end, ABOVE] = end, end
