"""The tiers below HBM: where a block is found, and how one gets in, is passed on, or leaves."""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.np.numpy_support import carray

from pipeline.eviction import calls
from pipeline.placement.base import DEMOTE, OFFLOAD, WRITE_BACK, WRITE_SELECTIVE, WRITE_THROUGH, int64
from pipeline.placement.state import (
    DRAM,
    HBM,
    IN_HBM,
    MOST_USES,
    NONE,
    REMOTE,
    Stack,
    StackTiers,
    entries,
    next_write,
    ready_s,
    spared,
    uses,
    where,
    where_in,
)
from pipeline.records import bytes_at

LOWER = 0b1110
"""Bits of the tiers below HBM."""
PASSING = int64(-1)
"""Cause of a copy that costs no transfer of its own: the block comes by on its way up."""


@njit(cache=True)
def tiers_of(stack: Stack, block: int) -> int:
    """StackTiers that the block lies in or is on its way to, bit t for tier t."""
    bits = int(where(stack)[block])
    for scope in range(2):
        if stack.shared_where[scope] != 0:
            bits |= int(carray(bytes_at(stack.shared_where[scope]), (stack.where_rows,))[block])
    return bits


@njit(cache=True)
def tier_with(stack: Stack, tiers: StackTiers, block: int, time_s: float) -> int:
    """Name the fastest tier in which the block is found; -1 if there is none, or it is only on its way."""
    bits = tiers_of(stack, block)
    if bits & IN_HBM:
        return HBM
    for tier in range(DRAM, REMOTE + 1):
        if (bits >> tier) & 1 and (not stack.times_writes or ready_s(tiers.tiers[tier])[block] <= time_s):
            return tier
    return NONE


@njit(cache=True)
def put(stack: Stack, tiers: StackTiers, block: int, source: int, target: int, cause: int, time_s: float) -> None:
    """Copy a block of tier `source` into the lower tier `target`, where it is not, evicting and passing on there.

    Nothing happens where the link is behind by more than the write buffer holds and nobody waits for that, or where
    nothing can be evicted. What is passed on is put further down, before the block where it makes room for it, after it
    where it is a copy: a frame per tier says what is being put there (recursion and compiled code on disk do not go
    together).
    """
    if stack.puts_one:
        _put_one(stack, tiers, block, source, target, cause, time_s)
        return
    top = target
    frame = _begin(stack, tiers, block, source, target, cause, time_s)
    while True:
        below = stack.below[target]
        if frame.evictions > 0:
            frame.evictions -= 1
            victim = _evict(stack, tiers, target, time_s)
            if victim == NONE:
                frame.evictions = 0
            elif below != NONE and stack.lower_write_policy == WRITE_BACK and tiers_of(stack, victim) & LOWER == 0:
                frame = _begin(stack, tiers, victim, target, below, DEMOTE, time_s)
                target = below
            continue
        if not frame.entered:
            frame.entered = True
            entered = _enter(stack, tiers, frame.block, frame.source, target, frame.cause, time_s)
            if entered and _is_copied_on(stack, frame.block, target, below):
                frame = _begin(stack, tiers, frame.block, target, below, OFFLOAD, time_s)
                target = below
                continue
        if target == top:
            return
        target = frame.source
        frame = stack.frames[target]


@njit(cache=True)
def _put_one(stack: Stack, tiers: StackTiers, block: int, source: int, target: int, cause: int, time_s: float) -> None:
    """As `put`, where nothing is copied on, and a tier evicts one block for one: down to the last victim, and back."""
    top = target
    while True:
        frame = stack.frames[target]
        frame.block, frame.source, frame.cause = block, source, cause
        if cause != PASSING and _is_behind(stack, source, target, time_s):
            stack.dropped_blocks[target] += 1
            if target == top:
                return
            target = source
            break
        below, victim = stack.below[target], int64(NONE)
        if tiers.tiers[target].used_blocks >= tiers.tiers[target].evict_at_blocks:
            victim = _evict(stack, tiers, target, time_s)
        if NONE in (victim, below) or stack.lower_write_policy != WRITE_BACK or tiers_of(stack, victim) & LOWER:
            break
        block, source, target, cause = victim, target, below, DEMOTE
    while True:
        frame = stack.frames[target]
        _enter(stack, tiers, frame.block, frame.source, target, frame.cause, time_s)
        if target == top:
            return
        target = frame.source


@njit(cache=True)
def _begin(stack: Stack, tiers: StackTiers, block: int, source: int, target: int, cause: int, time_s: float) -> Any:
    """Fill the frame of a tier: what is to be put there, after how many evictions."""
    frame = stack.frames[target]
    frame.block, frame.source, frame.cause = block, source, cause
    frame.entered = cause != PASSING and _is_behind(stack, source, target, time_s)
    tier = tiers.tiers[target]
    frame.evictions = 0
    if frame.entered:
        stack.dropped_blocks[target] += 1
    elif tier.used_blocks >= tier.evict_at_blocks:
        frame.evictions = tier.evict_blocks
    return frame


@njit(cache=True)
def _evict(stack: Stack, tiers: StackTiers, tier: int, time_s: float) -> int:
    victim = calls.victim(tiers.functions, tiers.states[tier], spared(stack), time_s)
    if victim != NONE:
        leave(tiers, victim, tier)
        stack.evicted_blocks[tier] += 1
    return victim


@njit(cache=True)
def _enter(stack: Stack, tiers: StackTiers, block: int, source: int, target: int, cause: int, time_s: float) -> bool:
    tier = tiers.tiers[target]
    if tier.used_blocks >= tier.capacity_blocks:
        stack.dropped_blocks[target] += 1
        return False
    where_in(tier)[block] |= 1 << target
    tier.used_blocks += 1
    tier.peak_blocks = max(tier.peak_blocks, tier.used_blocks)
    calls.insert(tiers.functions, tiers.states[target], block, time_s)
    if cause == PASSING:
        ready_s(tier)[block] = time_s
    else:
        count_move(stack, source, target, cause)
        if stack.times_writes:
            ready_s(tier)[block] = _arrival_s(stack, tiers, block, source, target, time_s)
    return True


@njit(cache=True)
def _is_copied_on(stack: Stack, block: int, target: int, below: int) -> bool:
    """Say whether a block that has come into a tier is to be copied into the one below."""
    if below == NONE or stack.lower_write_policy < WRITE_THROUGH:
        return False
    if stack.lower_write_policy == WRITE_SELECTIVE and target == stack.below[HBM]:
        counts = entries(stack)
        counts[block] = min(counts[block] + 1, MOST_USES)
        if counts[block] < stack.lower_write_threshold:
            return False
    return (tiers_of(stack, block) >> below) & 1 == 0


@njit(cache=True)
def leave(tiers: StackTiers, block: int, tier: int) -> None:
    """Take a block that a policy has evicted out of its tier."""
    where_in(tiers.tiers[tier])[block] &= ~(1 << tier)
    tiers.tiers[tier].used_blocks -= 1


@njit(cache=True)
def forget(tiers: StackTiers, block: int, bits: int) -> None:
    """Remove the block from the tiers below HBM named by `bits`."""
    for tier in range(DRAM, REMOTE + 1):
        if (bits >> tier) & 1:
            leave(tiers, block, tier)
            calls.remove(tiers.functions, tiers.states[tier], block)


@njit(cache=True)
def touch_lower(tiers: StackTiers, block: int, bits: int, time_s: float) -> None:
    """Tell the policies of the tiers below HBM named by `bits` that their copy of the block was used."""
    for tier in range(DRAM, REMOTE + 1):
        if (bits >> tier) & 1:
            calls.touch(tiers.functions, tiers.states[tier], block, time_s)


@njit(cache=True)
def keep_on_the_way(stack: Stack, tiers: StackTiers, block: int, source: int, time_s: float) -> None:
    """Leave a copy of a block that comes up from `source` in the tiers that it passes."""
    tier = stack.below[HBM]
    while tier != NONE and tier < source:
        if (tiers_of(stack, block) >> tier) & 1 == 0:
            put(stack, tiers, block, source, tier, PASSING, time_s)
        tier = stack.below[tier]


@njit(cache=True)
def count_move(stack: Stack, source: int, target: int, cause: int) -> None:
    """Count a block that moves, for the engine to charge to a link."""
    stack.pending_blocks[source, target, cause] += 1
    stack.moved_blocks[source, target, cause] += 1
    stack.pending_count += 1


@njit(cache=True)
def _pending(stack: Stack, source: int, target: int) -> int:
    count = 0
    for cause in range(stack.pending_blocks.shape[2]):
        count += stack.pending_blocks[source, target, cause]
    return count


@njit(cache=True)
def _is_behind(stack: Stack, source: int, target: int, time_s: float) -> bool:
    if not stack.times_writes or stack.waits:
        return False
    behind_s = max(stack.free_s[source, target] - time_s, 0.0)
    return behind_s + _pending(stack, source, target) * stack.block_s[source, target] > stack.write_buffer_s


@njit(cache=True)
def _arrival_s(stack: Stack, tiers: StackTiers, block: int, source: int, target: int, time_s: float) -> float:
    """When the last block counted will be there, by what the link was last charged."""
    start_s = max(stack.free_s[source, target], time_s)
    if source != HBM:
        start_s = max(start_s, ready_s(tiers.tiers[source])[block])
    return start_s + stack.latency_s[source, target] + _pending(stack, source, target) * stack.block_s[source, target]


@njit(cache=True)
def note_use(stack: Stack, block: int, may_write: bool) -> None:
    """Count a use of a block of HBM, and list it to be written where it is due."""
    if stack.write_policy < WRITE_THROUGH:
        return
    if stack.write_policy == WRITE_SELECTIVE:
        counts = uses(stack)
        counts[block] = min(counts[block] + 1, MOST_USES)
        may_write &= counts[block] >= stack.write_threshold
    following = next_write(stack)
    if may_write and following[block] == NONE and tiers_of(stack, block) & LOWER == 0 and stack.below[HBM] != NONE:
        if stack.first_write == NONE:
            following[block] = block
            stack.first_write = stack.last_write = block
        elif stack.leaf_first:
            following[block] = stack.first_write
            stack.first_write = block
        else:
            following[block] = block
            following[stack.last_write] = block
            stack.last_write = block


@njit(cache=True)
def is_listed(stack: Stack, block: int) -> bool:
    """Say whether a block is to be written at the end of the step."""
    return bool(stack.write_policy >= WRITE_THROUGH and next_write(stack)[block] != NONE)


@njit(cache=True)
def write_listed(stack: Stack, tiers: StackTiers, time_s: float) -> None:
    """Write the listed blocks that HBM still holds one tier down: all of them have been computed by now."""
    block = stack.first_write
    if block == NONE:
        return
    stack.first_write = NONE
    following = next_write(stack)
    while True:
        after = int64(following[block])
        following[block] = NONE
        bits = tiers_of(stack, block)
        if bits & IN_HBM and bits & LOWER == 0:
            put(stack, tiers, block, HBM, stack.below[HBM], OFFLOAD, time_s)
        if after == block:
            break
        block = after


@njit(cache=True)
def demote(stack: Stack, tiers: StackTiers, block: int, time_s: float) -> None:
    """Put a block evicted from HBM one tier down, unless that is not the policy or a tier below holds it."""
    below = stack.below[HBM]
    if stack.spares_hbm:
        _spare_no_longer(stack, tiers, block, time_s)
    if stack.write_policy == WRITE_BACK and below != NONE and tiers_of(stack, block) & LOWER == 0:
        put(stack, tiers, block, HBM, below, DEMOTE, time_s)


@njit(cache=True)
def _spare_no_longer(stack: Stack, tiers: StackTiers, block: int, time_s: float) -> None:
    """Let the tiers below evict a block that has left HBM: the newest of those, as HBM evicts in order of age."""
    spared(stack)[block] = 0
    bits = tiers_of(stack, block)
    for tier in range(DRAM, REMOTE + 1):
        if (bits >> tier) & 1:
            calls.release(tiers.functions, tiers.states[tier], block, time_s)
