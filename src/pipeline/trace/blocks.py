"""Numbering of blocks: equal number, equal content and equal prefix."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.trace.request_trace import Ints

Ids = NDArray[np.uint64]


def number_blocks(offset: Ints, ids: Ids) -> tuple[Ints, Ints]:
    """Number the blocks of request chains densely, by order of first appearance.

    offset (n + 1,), ids (m,): any 64-bit ids. An id met under another prefix becomes another block, since its KV
    values differ. Returns the numbers (m,) and the positions (k,) of requests where an id met earlier stood under
    another prefix (none if the ids were hashes of the whole prefix, as they should be).
    """
    chained, plain = _number(offset, ids, True), _number(offset, ids, False)
    _, first = np.unique(plain, return_index=True)
    moved = np.flatnonzero(chained[first][plain] != chained)
    return chained, np.unique(np.searchsorted(offset, moved, side="right") - 1)


@njit(cache=True)
def _number(offset: Ints, ids: Ids, chained: bool) -> Ints:
    # Open addressing: a slot holds the position at which its (parent, id) first stood.
    slots_count = 8
    while slots_count < 2 * ids.size:
        slots_count *= 2
    slots = np.full(slots_count, -1, np.int64)
    parents = np.empty(ids.size, np.int64)
    numbers = np.empty(ids.size, np.int64)
    count = 0
    for i in range(offset.size - 1):
        parent = -1
        for j in range(offset[i], offset[i + 1]):
            parents[j] = parent
            h = (ids[j] ^ (np.uint64(parent + 1) * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
            slot = np.int64((h ^ (h >> np.uint64(32))) & np.uint64(slots_count - 1))
            while slots[slot] >= 0 and (ids[slots[slot]] != ids[j] or parents[slots[slot]] != parent):
                slot = (slot + 1) & (slots_count - 1)
            if slots[slot] < 0:
                slots[slot] = j
                numbers[j] = count
                count += 1
            else:
                numbers[j] = numbers[slots[slot]]
            if chained:
                parent = numbers[j]
    return numbers
