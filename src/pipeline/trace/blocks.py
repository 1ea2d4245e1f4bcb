"""Numbering of blocks: equal number, equal content and equal prefix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.mixing import mixed
from pipeline.trace.request_trace import Ints

Ids = NDArray[np.uint64]
Small = NDArray[np.int32]
FREE = np.int32(-1)
ROOT = np.int32(-1)
"""Parent of a block that begins a prompt."""
FIRST_SLOTS = 1 << 12
MOST_BLOCKS = 2**31 - 1


def number_blocks(offset: Ints, ids: Ids) -> tuple[Ints, Ints]:
    """Number the blocks of request chains densely, by order of first appearance.

    offset (n + 1,), ids (m,): any 64-bit ids. An id met under another prefix becomes another block, since its KV
    values differ. Returns the numbers (m,) and the positions (k,) of requests where an id met earlier stood under
    another prefix (none if the ids were hashes of the whole prefix, as they should be).
    """
    if ids.size > MOST_BLOCKS:
        raise ValueError(f"number_blocks: given {ids.size} blocks, expected at most {MOST_BLOCKS}")
    numbers, named = _number(np.ascontiguousarray(offset, np.int64), np.ascontiguousarray(ids, np.uint64))
    order = np.argsort(named, kind="stable")  # blocks that share an id, the first to appear first
    moved = np.zeros(named.size, np.bool_)
    moved[order[1:]] = named[order[1:]] == named[order[:-1]]
    if not moved.any():
        return numbers, np.zeros(0, np.int64)
    return numbers, np.unique(np.searchsorted(offset, np.flatnonzero(moved[numbers]), side="right") - 1)


@njit(cache=True)
def _number(offset: Ints, ids: Ids) -> tuple[Ints, Ids]:
    """Numbers (m,), and the id of each block: a hash table of numbers by parent and id, with linear probing."""
    numbers = np.empty(ids.size, np.int64)
    table = np.full(FIRST_SLOTS, FREE, np.int32)
    parents, named = np.empty(FIRST_SLOTS // 2, np.int32), np.empty(FIRST_SLOTS // 2, np.uint64)
    count = 0
    for request in range(offset.size - 1):
        parent = ROOT
        for i in range(offset[request], offset[request + 1]):
            slot = _slot(table, parents, named, parent, ids[i])
            if table[slot] == FREE:
                if count == parents.size:
                    parents = np.concatenate((parents, np.empty_like(parents)))
                    named = np.concatenate((named, np.empty_like(named)))
                    table = _doubled(table, parents, named, count)
                    slot = _slot(table, parents, named, parent, ids[i])
                table[slot] = count
                parents[count], named[count] = parent, ids[i]
                count += 1
            parent = table[slot]
            numbers[i] = parent
    return numbers, named[:count].copy()


@njit(cache=True)
def _slot(table: Small, parents: Small, named: Ids, parent: Any, block_id: Any) -> int:
    """Place of a block in the table, or the free place where it belongs."""
    mask = np.uint64(table.size - 1)
    at = mixed(block_id ^ mixed(np.uint64(parent))) & mask
    while table[at] != FREE:
        held = table[at]
        if named[held] == block_id and parents[held] == parent:
            break
        at = (at + np.uint64(1)) & mask
    return at


@njit(cache=True)
def _doubled(table: Small, parents: Small, named: Ids, count: int) -> Small:
    """The table of `count` blocks at twice its size: it is never more than half full."""
    larger = np.full(2 * table.size, FREE, np.int32)
    for number in range(count):
        larger[_slot(larger, parents, named, parents[number], named[number])] = number
    return larger
