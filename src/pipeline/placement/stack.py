"""The tier stack of one instance: which tier holds which block, who uses it, and what moved between the tiers.

The functions are compiled and called from inside the engine's kernel. A block is resident in a tier or not; HBM also
holds anonymous ("private") blocks, for tokens that do not fill a block yet or will never be shared.
`ids` are the block chains of a whole trace; ids[start:stop] is the chain of one request, first block of its prompt
first. `time_s` is simulated time, which must not go back.
"""

from __future__ import annotations

from numba import njit

from pipeline.eviction import calls
from pipeline.placement.base import OFFLOAD, ONBOARD, WRITE_SELECTIVE
from pipeline.placement.lower import (
    LOWER,
    count_move,
    demote,
    forget,
    is_listed,
    keep_on_the_way,
    leave,
    note_use,
    put,
    tier_with,
    tiers_of,
    touch_lower,
)
from pipeline.placement.state import DRAM, HBM, IN_HBM, NONE, REMOTE, SSD, Ints, Stack, StackTiers, pins, spared, where

COMING_AT = 4
COMING = 0b11 << COMING_AT
"""Bits of a block that is about to enter HBM: the tier that it comes from."""


@njit(cache=True)
def match(stack: Stack, tiers: StackTiers, ids: Ints, start: int, stop: int, time_s: float) -> int:
    """Count the leading run of blocks that are found in some tier; changes nothing."""
    i = start
    while i < stop and tier_with(stack, tiers, ids[i], time_s) != NONE:
        i += 1
    return i - start


@njit(cache=True)
def can_hold(stack: Stack, tiers: StackTiers, blocks_needed: int) -> bool:
    """Say whether HBM could take `blocks_needed` more blocks in use, by evicting those that nobody uses."""
    in_use = stack.private_blocks + stack.pinned_blocks
    return tiers.tiers[HBM].capacity_blocks - in_use >= blocks_needed


@njit(cache=True)
def account(tiers: StackTiers, time_s: float) -> None:
    """Bring the integrals of used blocks up to `time_s`; call it before `free_private` if time has moved."""
    if time_s <= tiers.tiers[HBM].last_s:
        return
    for k in range(REMOTE + 1):
        tier = tiers.tiers[k]
        elapsed_s = time_s - tier.last_s
        if elapsed_s > 0:
            tier.used_block_seconds += tier.used_blocks * elapsed_s
            tier.last_s = time_s


@njit(cache=True)
def acquire(
    stack: Stack, tiers: StackTiers, ids: Ints, start: int, run: int, cause: int, time_s: float
) -> tuple[bool, int, int, int, int]:
    """Pin the `run` blocks from ids[start], each found in some tier, and bring those below HBM up.

    cause: ONBOARD, or PREFETCH, which is no use of the blocks, and no hit.
    Returns (ok, hits in HBM, in DRAM, in SSD, in the remote tier). If they do not all fit, nothing has changed and ok
    is False. All are pinned before anything is evicted, so that what is about to be used stays.
    """
    account(tiers, time_s)
    pinned, absent = _pin(stack, ids, start, run)
    if not can_hold(stack, tiers, pinned):
        for i in range(start, start + run):
            pins(stack)[ids[i]] -= 1
        return False, 0, 0, 0, 0
    stack.pinned_blocks += pinned
    if stack.inclusive:
        _touch_below(stack, tiers, ids, start, run, cause, time_s)
    dram, ssd, remote = 0, 0, 0
    if absent > 0:
        dram, ssd, remote = _leave_below(stack, tiers, ids, start, run, cause, time_s)
        _make_room(stack, tiers, absent, time_s)
    for i in range(start, start + run):
        _use(stack, tiers, ids[i], cause, time_s)
    if cause == ONBOARD:
        stack.hit_blocks[HBM] += run - absent
    return True, run - absent, dram, ssd, remote


@njit(cache=True)
def _leave_below(
    stack: Stack, tiers: StackTiers, ids: Ints, start: int, run: int, cause: int, time_s: float
) -> tuple[int, int, int]:
    """Start the way up of the blocks below HBM; return how many come from each tier.

    They leave the lower tiers before room is made: else the blocks demoted for them could push them out below.
    """
    dram, ssd, remote = 0, 0, 0
    for i in range(start, start + run):
        source = _begin_to_come(stack, tiers, ids[i], cause, time_s)
        dram += source == DRAM
        ssd += source == SSD
        remote += source == REMOTE
    if stack.keeps_on_the_way:
        for i in range(start, start + run):
            keep_on_the_way(stack, tiers, ids[i], (where(stack)[ids[i]] & COMING) >> COMING_AT, time_s)
    return dram, ssd, remote


@njit(cache=True)
def _use(stack: Stack, tiers: StackTiers, block: int, cause: int, time_s: float) -> None:
    if where(stack)[block] & IN_HBM == 0:
        _enter_hbm(stack, tiers, block, time_s)
    elif cause == ONBOARD:
        calls.touch(tiers.functions, tiers.states[HBM], block, time_s)
    if cause == ONBOARD and (stack.hits_count_below or stack.write_policy == WRITE_SELECTIVE):
        note_use(stack, block, True)


@njit(cache=True)
def record_misses(stack: Stack, block_count: int) -> None:
    """Count blocks that were looked up and are in no tier (hits are counted by `acquire`)."""
    stack.missed_blocks += block_count


@njit(cache=True)
def reserve(stack: Stack, tiers: StackTiers, block_count: int, time_s: float) -> bool:
    """Take `block_count` private blocks of HBM, evicting as needed; False, and nothing changed, if they do not fit."""
    if not can_hold(stack, tiers, block_count):
        return False
    account(tiers, time_s)
    _make_room(stack, tiers, block_count, time_s)
    stack.private_blocks += block_count
    _use_hbm(tiers, block_count)
    return True


@njit(cache=True)
def commit(stack: Stack, tiers: StackTiers, block: int, is_output: bool, time_s: float) -> None:
    """Turn one private block, now full, into the cached block `block`, pinned by the request that computed it.

    If another request has brought the block into HBM meanwhile, the private one is given back. is_output: some of its
    tokens are the request's output.
    """
    account(tiers, time_s)
    stack.private_blocks -= 1
    tiers.tiers[HBM].used_blocks -= 1
    if pins(stack)[block] == 0:
        stack.pinned_blocks += 1
    pins(stack)[block] += 1
    bits = tiers_of(stack, block)
    if bits & LOWER:
        if stack.inclusive:
            touch_lower(tiers, block, bits, time_s)
        else:
            forget(tiers, block, bits)
    if bits & IN_HBM:
        calls.touch(tiers.functions, tiers.states[HBM], block, time_s)
    else:
        _enter_hbm(stack, tiers, block, time_s)
    note_use(stack, block, stack.writes_output or not is_output)


@njit(cache=True)
def release(stack: Stack, tiers: StackTiers, ids: Ints, start: int, stop: int, time_s: float) -> None:
    """Unpin ids[start:stop], last first, so that the leaves of a chain are older than its root."""
    account(tiers, time_s)
    for i in range(stop - 1, start - 1, -1):
        block = ids[i]
        if stack.inclusive and stack.leaf_first:
            touch_lower(tiers, block, tiers_of(stack, block), time_s)
        pins(stack)[block] -= 1
        if pins(stack)[block] == 0:
            stack.pinned_blocks -= 1
            if stack.hbm_keeps_unused:
                calls.release(tiers.functions, tiers.states[HBM], block, time_s)
            else:
                _let_go(stack, tiers, block, time_s)


@njit(cache=True)
def _let_go(stack: Stack, tiers: StackTiers, block: int, time_s: float) -> None:
    """Take a block that nobody uses any more out of HBM, once it is written where it was to be."""
    if is_listed(stack, block) and tiers_of(stack, block) & LOWER == 0:
        put(stack, tiers, block, HBM, stack.below[HBM], OFFLOAD, time_s)
    calls.remove(tiers.functions, tiers.states[HBM], block)
    leave(tiers, block, HBM)
    demote(stack, tiers, block, time_s)


@njit(cache=True)
def free_private(stack: Stack, tiers: StackTiers, block_count: int) -> None:
    """Give back private blocks."""
    stack.private_blocks -= block_count
    tiers.tiers[HBM].used_blocks -= block_count


@njit(cache=True)
def take_pending(stack: Stack, out: Ints) -> None:
    """Copy the moves since the last call to `out` (4, 4, causes), and forget them."""
    stack.pending_count = 0
    for source in range(out.shape[0]):
        for target in range(out.shape[1]):
            for cause in range(out.shape[2]):
                out[source, target, cause] = stack.pending_blocks[source, target, cause]
                stack.pending_blocks[source, target, cause] = 0


@njit(cache=True)
def _pin(stack: Stack, ids: Ints, start: int, run: int) -> tuple[int, int]:
    """Pin the blocks; return how many had no user before, and how many of these are not in HBM."""
    pinned, absent = 0, 0
    for i in range(start, start + run):
        block = ids[i]
        pins(stack)[block] += 1
        if pins(stack)[block] == 1:
            pinned += 1
            absent += where(stack)[block] & IN_HBM == 0
    return pinned, absent


@njit(cache=True)
def _touch_below(stack: Stack, tiers: StackTiers, ids: Ints, start: int, run: int, cause: int, time_s: float) -> None:
    """Tell the tiers below HBM what was hit: of all, before what stays on its way up can push one of them out."""
    for k in range(run):
        block = ids[start + run - 1 - k] if stack.hits_leaf_first else ids[start + k]
        bits = tiers_of(stack, block)
        if bits & IN_HBM == 0 or (cause == ONBOARD and stack.hits_count_below):
            touch_lower(tiers, block, bits, time_s)
        if stack.spares_hbm:
            spared(stack)[block] = 1


@njit(cache=True)
def _begin_to_come(stack: Stack, tiers: StackTiers, block: int, cause: int, time_s: float) -> int:
    """Start the way up of a block that is not in HBM; return its tier, -1 if it needs no move."""
    bits = tiers_of(stack, block)
    if bits & (IN_HBM | COMING):
        return NONE
    source = tier_with(stack, tiers, block, time_s)
    where(stack)[block] |= source << COMING_AT
    stack.hit_blocks[source] += cause == ONBOARD
    count_move(stack, source, HBM, cause)
    if not stack.inclusive:
        forget(tiers, block, bits)
    return source


@njit(cache=True)
def _enter_hbm(stack: Stack, tiers: StackTiers, block: int, time_s: float) -> None:
    where(stack)[block] = (where(stack)[block] & ~COMING) | IN_HBM
    if stack.spares_hbm:
        spared(stack)[block] = 1
    _use_hbm(tiers, 1)
    calls.insert(tiers.functions, tiers.states[HBM], block, time_s)


@njit(cache=True)
def _use_hbm(tiers: StackTiers, block_count: int) -> None:
    hbm = tiers.tiers[HBM]
    hbm.used_blocks += block_count
    hbm.peak_blocks = max(hbm.peak_blocks, hbm.used_blocks)


@njit(cache=True)
def _make_room(stack: Stack, tiers: StackTiers, block_count: int, time_s: float) -> None:
    """Evict from HBM until `block_count` blocks are free; the caller knows that they can be."""
    hbm = tiers.tiers[HBM]
    while hbm.used_blocks + block_count > hbm.capacity_blocks:
        block = calls.victim(tiers.functions, tiers.states[HBM], pins(stack), time_s)
        if block < 0:
            raise RuntimeError("the eviction policy names no victim, though HBM holds blocks that nobody uses")
        leave(tiers, block, HBM)
        stack.evicted_blocks[HBM] += 1
        demote(stack, tiers, block, time_s)
