"""What must always hold of a tier stack, and what it tells at the end."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.placement.state import DRAM, HBM, Ints, Stack, StackTiers, pins, where_in
from pipeline.values import TIERS


@njit(cache=True)
def _users(stack: Stack) -> NDArray[np.int32]:
    return pins(stack).copy()


@njit(cache=True)
def _bits(tiers: StackTiers, tier: int) -> NDArray[np.uint8]:
    return where_in(tiers.tiers[tier]).copy()


def residents(tiers: StackTiers, tier: int) -> NDArray[np.bool_]:
    """Whether each block (U,) lies in a tier, or is on its way there."""
    return (_bits(tiers, tier) >> tier) & 1 == 1


def lookup_blocks(stack: Stack) -> Ints:
    """Blocks looked up in each tier, (4,): those that no faster tier held, hits and misses."""
    hits: Ints = stack.hit_blocks
    return hits[::-1].cumsum()[::-1] + stack.missed_blocks


def check_invariants(stack: Stack, tiers: StackTiers) -> list[str]:
    """List what is wrong with the stack, one line each; empty if nothing is."""
    wrong = []
    users = _users(stack)
    for k, name in enumerate(TIERS):
        tier = tiers.tiers[k]
        used, peak, capacity = int(tier.used_blocks), int(tier.peak_blocks), int(tier.capacity_blocks)
        held = int(np.count_nonzero(residents(tiers, k))) + (int(stack.private_blocks) if k == HBM else 0)
        if held != used:
            wrong.append(f"{name}: {used} blocks counted as used, but {held} are held")
        if not 0 <= used <= peak <= capacity:
            wrong.append(f"{name}: {used} blocks used, peak {peak}, capacity {capacity}")
    pinned = int(np.count_nonzero(users))
    if min(users.min(initial=0), stack.private_blocks, stack.missed_blocks) < 0:
        wrong.append("more blocks were released than taken")
    in_hbm = residents(tiers, HBM)
    if np.any((users > 0) & ~in_hbm):
        wrong.append("hbm: a pinned block is not resident")
    if not stack.inclusive:
        for k in range(DRAM, len(TIERS)):
            if tiers.tiers[k].stack_count == 1 and np.any(residents(tiers, k) & in_hbm):
                wrong.append(f"{TIERS[k]}: a block lies there and in HBM, though a block is to lie in one tier")
    if np.any(_bits(tiers, HBM) >> len(TIERS)):
        wrong.append("hbm: a block is still about to enter")
    if pinned != stack.pinned_blocks:
        wrong.append(f"hbm: {stack.pinned_blocks} blocks counted as pinned, but {pinned} are")
    if np.any(stack.pending_blocks > stack.moved_blocks):
        wrong.append("more blocks wait to be charged to a link than moved")
    return wrong
