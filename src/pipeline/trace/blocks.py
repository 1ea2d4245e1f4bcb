"""Numbering of blocks: equal number, equal content and equal prefix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.trace.request_trace import Ints

Ids = NDArray[np.uint64]


def number_blocks(offset: Ints, ids: Ids) -> tuple[Ints, Ints]:
    """Number the blocks of request chains densely, by order of first appearance.

    offset (n + 1,), ids (m,): any 64-bit ids. An id met under another prefix becomes another block, since its KV
    values differ. Returns the numbers (m,) and the positions (k,) of requests where an id met earlier stood under
    another prefix (none if the ids were hashes of the whole prefix, as they should be).
    """
    _, first, plain = np.unique(ids, return_index=True, return_inverse=True)
    numbers = _by_appearance(_number(offset, plain))
    moved = np.flatnonzero(numbers[first][plain] != numbers)
    return numbers, np.unique(np.searchsorted(offset, moved, side="right") - 1)


def _number(offset: Ints, plain: Ints) -> Ints:
    """Number pairs (number of the block before, id), depth by depth; plain (m,): ids below m."""
    numbers = np.empty(plain.size, np.int64)
    at, end = offset[:-1], offset[1:]
    parent, count = np.zeros(at.size, np.int64), 0
    while (longer := at < end).any():
        at, end, parent = at[longer], end[longer], parent[longer]
        pairs, number = np.unique(parent * plain.size + plain[at], return_inverse=True)
        parent = numbers[at] = count + number
        count += pairs.size
        at = at + 1
    return numbers


def _by_appearance(numbers: Ints) -> Ints:
    _, first, number = np.unique(numbers, return_index=True, return_inverse=True)
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[number]
