"""What a policy may know of the trace beside what happens in its tier: made once per simulation for all tiers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NONE = -1


class BlockFacts(NamedTuple):
    """The chains of a trace, told by block; U distinct blocks, m places in chains.

    parent: (U,) int32, the block before it in its chain, NONE for a first one. use_s[use_offset[b]:use_offset[b + 1]]:
    when block b will be looked up, ascending; use_offset (U + 1,), use_s (m,). tail_blocks: (m,) int32, from the block
    to the end of the chain that looks it up then, itself included.
    """

    parent: NDArray[np.int32]
    use_offset: Ints
    use_s: NDArray[np.float64]
    tail_blocks: NDArray[np.int32]


def make_facts(block_ids: Ints, offset: Ints, time_s: NDArray[np.float64], block_count: int) -> BlockFacts:
    """Turn chains round: block_ids[offset[i]:offset[i + 1]] is chain i; time_s: (m,) not descending, of each place.

    In a simulation the times are the arrivals that the trace names. A request waits before it looks its blocks up, and
    in a closed loop it arrives at another time altogether: so a policy that uses them is a reference, not a bound.
    A block that stands after several others keeps the first as its parent.
    """
    length = np.diff(offset)
    before = np.concatenate(([NONE], block_ids[:-1])).astype(np.int32)[: block_ids.size]
    before[offset[:-1][length > 0]] = NONE
    parent = np.full(block_count, NONE, np.int32)
    parent[block_ids[::-1]] = before[::-1]
    tail = (np.repeat(offset[1:], length) - np.arange(block_ids.size)).astype(np.int32)
    order = np.argsort(block_ids, kind="stable")
    use_offset = np.concatenate(([0], np.cumsum(np.bincount(block_ids, minlength=block_count)))).astype(np.int64)
    return BlockFacts(parent, use_offset, np.ascontiguousarray(time_s[order], np.float64), tail[order])
