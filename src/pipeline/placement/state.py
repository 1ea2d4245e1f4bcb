"""State of the tier stack of one instance, as arrays, and what must always hold of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyArrays, PolicyFunctions
from pipeline.placement.base import CAUSES, Placement
from pipeline.values import TIERS

Ints = NDArray[np.int64]

HBM, DRAM, SSD, REMOTE = range(4)
NONE = -1
PINNED, PRIVATE, MISSES = range(3)
IN_HBM = 1 << HBM


class Stack(NamedTuple):
    """Tiers of one instance by index HBM, DRAM, SSD, REMOTE; U distinct blocks, of which a tier holds some.

    where: (U,) bit t set: resident in tier t. pins: (U,) running requests that use the block in HBM. lower_pins: (U,)
    likewise for a copy below HBM. below: (4,) tier that takes what tier t evicts, -1 if it is dropped.
    counts: by position PINNED (blocks of HBM with a user), PRIVATE (anonymous blocks of HBM), MISSES (recorded).
    used_blocks, capacity_blocks, peak_blocks, hit_blocks, evicted_blocks: (4,); used and peak include private blocks.
    pending_blocks, moved_blocks: (4, 4, causes) by source, target, cause: not yet taken by the engine; in total.
    used_block_seconds: (4,) integral of used_blocks up to last_s (1,).
    """

    where: NDArray[np.uint8]
    pins: NDArray[np.int32]
    lower_pins: NDArray[np.int32]
    below: Ints
    counts: Ints
    used_blocks: Ints
    capacity_blocks: Ints
    peak_blocks: Ints
    hit_blocks: Ints
    evicted_blocks: Ints
    pending_blocks: Ints
    moved_blocks: Ints
    used_block_seconds: NDArray[np.float64]
    last_s: NDArray[np.float64]


class StackPolicies(NamedTuple):
    """Eviction state of each tier, and the operations they share."""

    arrays: tuple[PolicyArrays, PolicyArrays, PolicyArrays, PolicyArrays]
    functions: PolicyFunctions


def make_stack(
    block_count: int, capacity_blocks: Ints, eviction: EvictionPolicy, placement: Placement
) -> tuple[Stack, StackPolicies]:
    """Make the empty stack of one instance.

    block_count: distinct blocks in the trace. capacity_blocks: (4,) by tier; a tier of zero blocks is left out, and
    the tier above it passes evicted blocks on to the next one.
    """
    capacity = np.array(capacity_blocks, np.int64)
    if capacity.shape != (len(TIERS),) or capacity.min() < 0:
        raise ValueError(f"capacity_blocks: given {capacity_blocks}, expected {len(TIERS)} counts, none negative")
    moves = (len(TIERS), len(TIERS), len(CAUSES))
    stack = Stack(
        where=np.zeros(block_count, np.uint8),
        pins=np.zeros(block_count, np.int32),
        lower_pins=np.zeros(block_count, np.int32),
        below=_below(capacity, placement),
        counts=np.zeros(3, np.int64),
        used_blocks=np.zeros(len(TIERS), np.int64),
        capacity_blocks=capacity,
        peak_blocks=np.zeros(len(TIERS), np.int64),
        hit_blocks=np.zeros(len(TIERS), np.int64),
        evicted_blocks=np.zeros(len(TIERS), np.int64),
        pending_blocks=np.zeros(moves, np.int64),
        moved_blocks=np.zeros(moves, np.int64),
        used_block_seconds=np.zeros(len(TIERS), np.float64),
        last_s=np.zeros(1, np.float64),
    )
    hbm, dram, ssd, remote = (eviction.arrays(block_count, int(blocks)) for blocks in capacity)
    return stack, StackPolicies((hbm, dram, ssd, remote), eviction.functions())


def _below(capacity: Ints, placement: Placement) -> Ints:
    below = np.full(len(TIERS), NONE, np.int64)
    if placement.demote:
        kept = [tier for tier in range(len(TIERS)) if tier == HBM or capacity[tier] > 0]
        below[kept[:-1]] = kept[1:]
    return below


def lookup_blocks(stack: Stack) -> Ints:
    """Blocks looked up in each tier (4,): those that no faster tier held, hits and misses."""
    hits = stack.hit_blocks
    return hits[::-1].cumsum()[::-1] + stack.counts[MISSES]


def check_invariants(stack: Stack) -> list[str]:
    """List what is wrong with the stack, one line each; empty if nothing is."""
    wrong = []
    for tier, name in enumerate(TIERS):
        used, capacity = int(stack.used_blocks[tier]), int(stack.capacity_blocks[tier])
        resident = int(np.count_nonzero(stack.where & (1 << tier)))
        held = resident + (int(stack.counts[PRIVATE]) if tier == HBM else 0)
        if held != used:
            wrong.append(f"{name}: {used} blocks counted as used, but {held} are held")
        if not 0 <= used <= capacity:
            wrong.append(f"{name}: {used} blocks used of {capacity}")
        if not used <= stack.peak_blocks[tier] <= capacity:
            wrong.append(f"{name}: peak {stack.peak_blocks[tier]} with {used} used of {capacity}")
    pinned = stack.pins > 0
    if stack.pins.min(initial=0) < 0 or stack.lower_pins.min(initial=0) < 0:
        wrong.append("a block was released more often than it was pinned")
    if np.any(pinned & (stack.where & IN_HBM == 0)):
        wrong.append("hbm: a pinned block is not resident")
    if np.count_nonzero(pinned) != stack.counts[PINNED]:
        wrong.append(f"hbm: {stack.counts[PINNED]} blocks counted as pinned, but {np.count_nonzero(pinned)} are")
    if min(stack.counts) < 0:
        wrong.append(f"hbm: negative counts {stack.counts.tolist()}")
    if np.any(stack.pending_blocks > stack.moved_blocks):
        wrong.append("more blocks wait to be charged to a link than moved")
    return wrong
