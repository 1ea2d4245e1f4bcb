"""Which prompt blocks were sent to which instance: what a router believes each prefix cache holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.routing.base import Ints

Words = NDArray[np.uint64]
Numbers = NDArray[np.int32]

ONE = np.uint64(1)
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads consecutive block numbers over the table


class PrefixArrays(NamedTuple):
    """State for m instances of at most c blocks; row i is instance i's. Nodes are numbered from 1; 0 is none.

    holders: (blocks, words), bit i % 64 of word i // 64 says that instance i holds the block.
    capacity_blocks, used_blocks: (m,). block: (m, c + 1), block of each node. older, newer: (m, c + 1), nodes in order
        of use as a ring through node 0, so newer[i, 0] is the least recently used.
    table: (m, h), h a power of two: node of a block, open addressing with linear probing; shift: 64 - log2(h).
    """

    holders: Words
    capacity_blocks: Ints
    used_blocks: Ints
    block: Numbers
    older: Numbers
    newer: Numbers
    table: Numbers
    shift: np.uint64


@njit(cache=True)
def _home(a: PrefixArrays, block: int) -> int:
    return int(np.int64((np.uint64(block) * SPREAD) >> a.shift))


@njit(cache=True)
def _slot(a: PrefixArrays, i: int, block: int) -> int:
    """Place in instance i's table of `block`, or of the empty place where it belongs."""
    mask = a.table.shape[1] - 1
    slot = _home(a, block)
    while a.table[i, slot] != 0 and a.block[i, a.table[i, slot]] != block:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _vacate(a: PrefixArrays, i: int, hole: int) -> None:
    """Empty a place of the table and move up the entries that had to probe past it."""
    mask = a.table.shape[1] - 1
    slot = (hole + 1) & mask
    while a.table[i, slot] != 0:
        home = _home(a, int(a.block[i, a.table[i, slot]]))
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            a.table[i, hole] = a.table[i, slot]
            hole = slot
        slot = (slot + 1) & mask
    a.table[i, hole] = 0


@njit(cache=True)
def _unlink(a: PrefixArrays, i: int, node: int) -> None:
    older, newer = a.older[i, node], a.newer[i, node]
    a.newer[i, older] = newer
    a.older[i, newer] = older


@njit(cache=True)
def _free_node(a: PrefixArrays, i: int) -> int:
    """A node to hold a new block: an unused one, or that of the least recently used block, which is forgotten."""
    if a.used_blocks[i] < a.capacity_blocks[i]:
        a.used_blocks[i] += 1
        return int(a.used_blocks[i])
    node = int(a.newer[i, 0])
    block = int(a.block[i, node])
    _unlink(a, i, node)
    _vacate(a, i, _slot(a, i, block))
    a.holders[block, i // 64] &= ~(ONE << np.uint64(i % 64))
    return node


@njit(cache=True)
def _check(a: PrefixArrays, block_ids: Ints) -> None:
    for block in block_ids:
        if block < 0 or block >= a.holders.shape[0]:
            raise ValueError("prefix index: a block id is not in 0..block_count-1")


@njit(cache=True)
def _record(a: PrefixArrays, i: int, block_ids: Ints) -> None:
    """Mark the chain used at instance i, its end first: the first block is then the last to be forgotten."""
    _check(a, block_ids)
    for k in range(min(block_ids.size, a.capacity_blocks[i]) - 1, -1, -1):
        block = int(block_ids[k])
        node = int(a.table[i, _slot(a, i, block)])
        if node != 0:
            _unlink(a, i, node)
        else:
            node = _free_node(a, i)
            a.block[i, node] = block
            a.table[i, _slot(a, i, block)] = node
            a.holders[block, i // 64] |= ONE << np.uint64(i % 64)
        newest = a.older[i, 0]
        a.older[i, node], a.newer[i, node] = newest, 0
        a.newer[i, newest], a.older[i, 0] = node, node


@njit(cache=True)
def _leading_run(a: PrefixArrays, block_ids: Ints) -> Ints:
    """Leading blocks of the chain that each instance holds, shape (m,)."""
    _check(a, block_ids)
    instance_count = a.capacity_blocks.size
    run = np.full(instance_count, block_ids.size)
    for word in range(a.holders.shape[1]):
        first = word * 64
        last = min(first + 64, instance_count)
        holding = ~np.uint64(0)
        for k in range(block_ids.size):
            left = holding & ~a.holders[block_ids[k], word]
            if left != 0:
                for i in range(first, last):
                    if left >> np.uint64(i - first) & ONE:
                        run[i] = k
                holding &= a.holders[block_ids[k], word]
                if holding == 0:
                    break
    return run


class PrefixIndex:
    """The blocks sent to each instance, least recently used forgotten first at its KV capacity.

    capacity_blocks: (m,), at least 0. block_tokens: tokens per block. block_count: block ids are 0..block_count-1.
    """

    def __init__(self, capacity_blocks: Ints, block_tokens: int, block_count: int) -> None:
        kept = np.minimum(capacity_blocks, block_count).astype(np.int64)
        nodes = int(kept.max(initial=0)) + 1
        places = 1 << (2 * nodes - 1).bit_length()
        shape = (kept.size, nodes)
        self._block_tokens = block_tokens
        self._arrays = PrefixArrays(
            np.zeros((block_count, (kept.size + 63) // 64), np.uint64),
            kept,
            np.zeros(kept.size, np.int64),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros((kept.size, places), np.int32),
            np.uint64(64 - places.bit_length() + 1),
        )

    def matched_tokens(self, block_ids: Ints, input_tokens: int) -> Ints:
        """Leading tokens of a prompt that each instance holds, shape (m,); below input_tokens, in whole blocks.

        Raises ValueError if a block id is out of range.
        """
        most = (input_tokens - 1) // self._block_tokens
        return _leading_run(self._arrays, block_ids[:most]) * self._block_tokens

    def record(self, index: int, block_ids: Ints) -> None:
        """Note that a prompt with this chain was sent to the instance in position `index`."""
        _record(self._arrays, index, block_ids)
