"""Which prompt blocks were sent to which instance: what a router believes each prefix cache holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from pipeline.records import address_of, array_at, ints_at, make_header, record_at
from pipeline.routing.instances import Ints

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


PREFIX_INDEX = np.dtype(
    [
        *(
            (name, np.int64)
            for name in ("holders", "capacity_blocks", "used_blocks", "block", "older", "newer", "table")
        ),
        *((name, np.int64) for name in ("block_count", "word_count", "instance_count", "node_count", "place_count")),
        ("shift", np.uint64),
        ("block_tokens", np.int64),
    ],
    align=True,
)
"""Addresses of the arrays of PrefixArrays, and their shapes."""

index_at = record_at(PREFIX_INDEX)
_numbers_at, _words_at = array_at(np.dtype(np.int32)), array_at(np.dtype(np.uint64))


@njit(inline="always")
def _arrays(address: int) -> PrefixArrays:
    x = index_at(address)
    nodes = (x.instance_count, x.node_count)
    return PrefixArrays(
        carray(_words_at(x.holders), (x.block_count, x.word_count)),
        carray(ints_at(x.capacity_blocks), (x.instance_count,)),
        carray(ints_at(x.used_blocks), (x.instance_count,)),
        carray(_numbers_at(x.block), nodes),
        carray(_numbers_at(x.older), nodes),
        carray(_numbers_at(x.newer), nodes),
        carray(_numbers_at(x.table), (x.instance_count, x.place_count)),
        x.shift,
    )


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
def record(address: int, i: int, block_ids: Ints) -> None:
    """Note that a prompt with this chain was sent to the instance in position i.

    Its end is marked used first: the first block is then the last to be forgotten. Raises ValueError if a block id is
    out of range.
    """
    a = _arrays(address)
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
def match(address: int, block_ids: Ints, input_tokens: int, out: Ints) -> None:
    """Leading tokens of a prompt that each instance holds, to `out` (m,); below input_tokens, in whole blocks.

    Raises ValueError if a block id is out of range.
    """
    a, block_tokens = _arrays(address), index_at(address).block_tokens
    block_ids = block_ids[: (input_tokens - 1) // block_tokens]
    _check(a, block_ids)
    out[:] = block_ids.size * block_tokens
    for word in range(a.holders.shape[1]):
        first = word * 64
        last = min(first + 64, out.size)
        holding = ~np.uint64(0)
        for k in range(block_ids.size):
            left = holding & ~a.holders[block_ids[k], word]
            if left != 0:
                for i in range(first, last):
                    if left >> np.uint64(i - first) & ONE:
                        out[i] = k * block_tokens
                holding &= a.holders[block_ids[k], word]
                if holding == 0:
                    break


class PrefixIndex:
    """The blocks sent to each instance, least recently used forgotten first at its KV capacity.

    capacity_blocks: (m,), at least 0. block_tokens: tokens per block. block_count: block ids are 0..block_count-1.
    address: for compiled code, see `match` and `record`.
    """

    def __init__(self, capacity_blocks: Ints, block_tokens: int, block_count: int) -> None:
        kept = np.minimum(capacity_blocks, block_count).astype(np.int64)
        nodes = int(kept.max(initial=0)) + 1
        places = 1 << (2 * nodes - 1).bit_length()
        words = (kept.size + 63) // 64
        self._arrays = {
            "holders": np.zeros((block_count, words), np.uint64),
            "capacity_blocks": kept,
            "used_blocks": np.zeros(kept.size, np.int64),
            **{name: np.zeros((kept.size, nodes), np.int32) for name in ("block", "older", "newer")},
            "table": np.zeros((kept.size, places), np.int32),
        }
        self._header = make_header(
            PREFIX_INDEX,
            **self._arrays,
            block_count=block_count,
            word_count=words,
            instance_count=kept.size,
            node_count=nodes,
            place_count=places,
            shift=64 - places.bit_length() + 1,
            block_tokens=block_tokens,
        )
        self.address = address_of(self._header)
