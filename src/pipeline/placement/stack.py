"""The tier stack of one instance: which tier holds which block, who uses it, and what moved between the tiers.

Everything is compiled and called from inside the engine's kernel. A block is resident in a tier or not; HBM also
holds anonymous ("private") blocks, for tokens that do not fill a block yet or will never be shared.
`ids` is the chain of a request inside a trace: blocks ids[start:stop], first block of the prompt first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyArrays, PolicyFunctions
from pipeline.placement.base import CAUSES, DEMOTE, ONBOARD, Placement
from pipeline.values import TIERS

Ints = NDArray[np.int64]

HBM, DRAM, SSD, REMOTE = range(4)
NONE = -1
PINNED, PRIVATE, MISSES = range(3)
IN_HBM = np.uint8(1 << HBM)


class Stack(NamedTuple):
    """State of one instance's tiers; U distinct blocks, tiers by index (HBM, DRAM, SSD, REMOTE).

    where: (U,) bit t set: resident in tier t. pins: (U,) running requests that use the block in HBM. lower_pins: (U,)
    likewise for a copy below HBM. below: (4,) tier that takes what tier t evicts, -1 if it is dropped.
    counts: PINNED blocks of HBM with a user, PRIVATE blocks of HBM, MISSES recorded.
    used_blocks, capacity_blocks, peak_blocks, hit_blocks, evicted_blocks: (4,); used and peak include private blocks.
    pending_blocks, moved_blocks: (4, 4, causes) source, target, cause: not yet taken by the engine; total.
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

    block_count: distinct blocks in the trace. capacity_blocks: (4,) by tier; a tier of zero is left out, and the tier
    above it passes evicted blocks on to the next one.
    """
    capacity = np.array(capacity_blocks, np.int64)
    if capacity.shape != (len(TIERS),) or capacity.min() < 0:
        raise ValueError(f"capacity_blocks: given {capacity_blocks}, expected {len(TIERS)} counts, none negative")
    below = np.full(len(TIERS), NONE, np.int64)
    if placement.demote:
        used = [tier for tier in range(len(TIERS)) if tier == HBM or capacity[tier] > 0]
        below[used[:-1]] = used[1:]
    moves = (len(TIERS), len(TIERS), len(CAUSES))
    stack = Stack(
        where=np.zeros(block_count, np.uint8),
        pins=np.zeros(block_count, np.int32),
        lower_pins=np.zeros(block_count, np.int32),
        below=below,
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
    arrays = tuple(eviction.arrays(block_count, int(blocks)) for blocks in capacity)
    return stack, StackPolicies((arrays[HBM], arrays[DRAM], arrays[SSD], arrays[REMOTE]), eviction.functions())


@njit(cache=True)
def match(stack: Stack, ids: Ints, start: int, stop: int) -> int:
    """Count the leading run of blocks that some tier holds; changes nothing."""
    i = start
    while i < stop and stack.where[ids[i]] != 0:
        i += 1
    return i - start


@njit(cache=True)
def can_hold(stack: Stack, blocks_needed: int) -> bool:
    """Say whether HBM could take `blocks_needed` more blocks by evicting all that nobody uses."""
    in_use = stack.counts[PRIVATE] + stack.counts[PINNED]
    return stack.capacity_blocks[HBM] - in_use >= blocks_needed


@njit(cache=True)
def fastest_tier(bits: int) -> int:
    """Return the fastest tier among the bits of `where`; there must be one."""
    tier = HBM
    while (bits >> tier) & 1 == 0:
        tier += 1
    return tier


@njit(cache=True)
def account(stack: Stack, time_s: float) -> None:
    """Bring the integrals of used blocks up to `time_s`; a time in the past adds nothing."""
    elapsed_s = time_s - stack.last_s[0]
    if elapsed_s > 0:
        for tier in range(4):
            stack.used_block_seconds[tier] += stack.used_blocks[tier] * elapsed_s
        stack.last_s[0] = time_s


@njit(cache=True)
def acquire(
    stack: Stack, policies: StackPolicies, ids: Ints, start: int, run: int, time_s: float
) -> tuple[bool, int, int, int]:
    """Pin the `run` resident blocks ids[start:start + run], bringing those below HBM up.

    Returns (ok, hits in HBM, in DRAM, in SSD); if they do not all fit, nothing has changed and ok is False. All are
    pinned before anything is evicted, so what is about to be used is never evicted.
    """
    account(stack, time_s)
    pinned, missing = _pin_run(stack, ids, start, run)
    if not can_hold(stack, pinned):
        for i in range(start, start + run):
            stack.pins[ids[i]] -= 1
        return False, 0, 0, 0
    stack.counts[PINNED] += pinned
    hits_before = stack.hit_blocks[HBM], stack.hit_blocks[DRAM], stack.hit_blocks[SSD]
    if missing > 0:
        # Room below first: else the blocks demoted now could push out those that are on their way up.
        for i in range(start, start + run):
            _take_up(stack, policies, ids[i])
        _make_room(stack, policies, missing, time_s)
    for i in range(start, start + run):
        block = ids[i]
        if stack.where[block] & IN_HBM:
            policies.functions.touch(policies.arrays[HBM], block, time_s)
        else:
            _enter_hbm(stack, policies, block, time_s)
    stack.hit_blocks[HBM] += run - missing
    lower = stack.hit_blocks[DRAM] - hits_before[1], stack.hit_blocks[SSD] - hits_before[2]
    return True, run - missing, lower[0], lower[1]
