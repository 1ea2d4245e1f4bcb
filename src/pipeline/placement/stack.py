"""The tier stack of one instance: which tier holds which block, who uses it, and what moved between the tiers.

The functions are compiled and called from inside the engine's kernel. A block is resident in a tier or not; HBM also
holds anonymous ("private") blocks, for tokens that do not fill a block yet or will never be shared.
`ids` are the block chains of a whole trace; ids[start:stop] is the chain of one request, first block of its prompt
first. `time_s` is simulated time, which must not go back.
"""

from __future__ import annotations

from numba import njit

from pipeline.eviction import calls
from pipeline.placement.base import DEMOTE, ONBOARD
from pipeline.placement.state import (
    DRAM,
    HBM,
    IN_HBM,
    NONE,
    REMOTE,
    SSD,
    Ints,
    Stack,
    StackPolicies,
    check_invariants,
    lookup_blocks,
    lower_pins,
    make_stack,
    pins,
    where,
)

__all__ = [
    "DRAM",
    "HBM",
    "REMOTE",
    "SSD",
    "Stack",
    "StackPolicies",
    "account",
    "acquire",
    "can_hold",
    "check_invariants",
    "commit",
    "free_private",
    "lookup_blocks",
    "lower_pins",
    "make_stack",
    "match",
    "pins",
    "record_misses",
    "release",
    "reserve",
    "take_pending",
    "where",
]


@njit(cache=True)
def match(stack: Stack, ids: Ints, start: int, stop: int) -> int:
    """Count the leading run of blocks that some tier holds; changes nothing."""
    i = start
    while i < stop and where(stack)[ids[i]] != 0:
        i += 1
    return i - start


@njit(cache=True)
def can_hold(stack: Stack, blocks_needed: int) -> bool:
    """Say whether HBM could take `blocks_needed` more blocks in use, by evicting those that nobody uses."""
    in_use = stack.private_blocks + stack.pinned_blocks
    return stack.capacity_blocks[HBM] - in_use >= blocks_needed


@njit(cache=True)
def account(stack: Stack, time_s: float) -> None:
    """Bring the integrals of used blocks up to `time_s`; call it before `free_private` if time has moved."""
    elapsed_s = time_s - stack.last_s
    if elapsed_s > 0:
        for tier in range(stack.used_blocks.size):
            stack.used_block_seconds[tier] += stack.used_blocks[tier] * elapsed_s
        stack.last_s = time_s


@njit(cache=True)
def acquire(
    stack: Stack, policies: StackPolicies, ids: Ints, start: int, run: int, time_s: float
) -> tuple[bool, int, int, int]:
    """Pin the `run` blocks from ids[start], each resident in some tier, and bring those below HBM up.

    Returns (ok, hits in HBM, in DRAM, in SSD). If they do not all fit, nothing has changed and ok is False. All are
    pinned before anything is evicted, so that what is about to be used stays.
    """
    account(stack, time_s)
    pinned, absent = _pin(stack, ids, start, run)
    if not can_hold(stack, pinned):
        for i in range(start, start + run):
            pins(stack)[ids[i]] -= 1
        return False, 0, 0, 0
    stack.pinned_blocks += pinned
    dram, ssd = 0, 0
    if absent > 0:
        # They leave the lower tiers first: else the blocks demoted for them could push them out below.
        for i in range(start, start + run):
            source = _leave_lower(stack, policies, ids[i])
            dram += source == DRAM
            ssd += source == SSD
        _make_room(stack, policies, absent, time_s)
    for i in range(start, start + run):
        block = ids[i]
        if where(stack)[block] & IN_HBM:
            calls.touch(policies.functions, policies.states[HBM], block, time_s)
        else:
            _enter_hbm(stack, policies, block, time_s)
    stack.hit_blocks[HBM] += run - absent
    return True, run - absent, dram, ssd


@njit(cache=True)
def record_misses(stack: Stack, block_count: int) -> None:
    """Count blocks that were looked up and are in no tier (hits are counted by `acquire`)."""
    stack.missed_blocks += block_count


@njit(cache=True)
def reserve(stack: Stack, policies: StackPolicies, block_count: int, time_s: float) -> bool:
    """Take `block_count` private blocks of HBM, evicting as needed; False, and nothing changed, if they do not fit."""
    if not can_hold(stack, block_count):
        return False
    account(stack, time_s)
    _make_room(stack, policies, block_count, time_s)
    stack.private_blocks += block_count
    _use_hbm(stack, block_count)
    return True


@njit(cache=True)
def commit(stack: Stack, policies: StackPolicies, block: int, time_s: float) -> None:
    """Turn one private block, now full, into the cached block `block`, pinned by the request that computed it.

    If another request has brought the block into HBM meanwhile, the private one is given back.
    """
    account(stack, time_s)
    stack.private_blocks -= 1
    stack.used_blocks[HBM] -= 1
    if pins(stack)[block] == 0:
        stack.pinned_blocks += 1
    pins(stack)[block] += 1
    if where(stack)[block] & IN_HBM:
        calls.touch(policies.functions, policies.states[HBM], block, time_s)
        return
    if where(stack)[block] != 0:
        _forget_lower(stack, policies, block)
    _enter_hbm(stack, policies, block, time_s)


@njit(cache=True)
def release(stack: Stack, policies: StackPolicies, ids: Ints, start: int, stop: int, time_s: float) -> None:
    """Unpin ids[start:stop], last first, so that the leaves of a chain are older than its root."""
    account(stack, time_s)
    for i in range(stop - 1, start - 1, -1):
        block = ids[i]
        pins(stack)[block] -= 1
        if pins(stack)[block] == 0:
            stack.pinned_blocks -= 1
            calls.release(policies.functions, policies.states[HBM], block, time_s)


@njit(cache=True)
def free_private(stack: Stack, block_count: int) -> None:
    """Give back private blocks."""
    stack.private_blocks -= block_count
    stack.used_blocks[HBM] -= block_count


@njit(cache=True)
def take_pending(stack: Stack, out: Ints) -> int:
    """Copy the moves since the last call to `out` (4, 4, causes), forget them, and return their number."""
    total = 0
    for source in range(out.shape[0]):
        for target in range(out.shape[1]):
            for cause in range(out.shape[2]):
                blocks = stack.pending_blocks[source, target, cause]
                out[source, target, cause] = blocks
                stack.pending_blocks[source, target, cause] = 0
                total += blocks
    return total


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
def _enter_hbm(stack: Stack, policies: StackPolicies, block: int, time_s: float) -> None:
    where(stack)[block] |= IN_HBM
    _use_hbm(stack, 1)
    calls.insert(policies.functions, policies.states[HBM], block, time_s)


@njit(cache=True)
def _use_hbm(stack: Stack, block_count: int) -> None:
    stack.used_blocks[HBM] += block_count
    stack.peak_blocks[HBM] = max(stack.peak_blocks[HBM], stack.used_blocks[HBM])


@njit(cache=True)
def _leave_lower(stack: Stack, policies: StackPolicies, block: int) -> int:
    """Start the way up of a block that is not in HBM; return its tier, -1 if it needs no move."""
    if where(stack)[block] == 0 or where(stack)[block] & IN_HBM:
        return NONE
    source = _forget_lower(stack, policies, block)
    stack.hit_blocks[source] += 1
    _count_move(stack, source, HBM, ONBOARD)
    return source


@njit(cache=True)
def _forget_lower(stack: Stack, policies: StackPolicies, block: int) -> int:
    """Remove the block from the tier below HBM that holds it; return that tier."""
    tier = DRAM
    while (where(stack)[block] >> tier) & 1 == 0:
        tier += 1
    where(stack)[block] = 0
    stack.used_blocks[tier] -= 1
    calls.remove(policies.functions, policies.states[tier], block)
    return tier


@njit(cache=True)
def _count_move(stack: Stack, source: int, target: int, cause: int) -> None:
    stack.pending_blocks[source, target, cause] += 1
    stack.moved_blocks[source, target, cause] += 1


@njit(cache=True)
def _make_room(stack: Stack, policies: StackPolicies, block_count: int, time_s: float) -> None:
    """Evict from HBM until `block_count` blocks are free; the caller knows that they can be."""
    while stack.used_blocks[HBM] + block_count > stack.capacity_blocks[HBM]:
        block = calls.victim(policies.functions, policies.states[HBM], pins(stack), time_s)
        if block < 0:
            raise RuntimeError("the eviction policy names no victim, though HBM holds blocks that nobody uses")
        _leave_tier(stack, HBM, block)
        _demote(stack, policies, block, time_s)


@njit(cache=True)
def _leave_tier(stack: Stack, tier: int, block: int) -> None:
    where(stack)[block] &= ~(1 << tier)
    stack.used_blocks[tier] -= 1
    stack.evicted_blocks[tier] += 1


@njit(cache=True)
def _demote(stack: Stack, policies: StackPolicies, block: int, time_s: float) -> None:
    """Put a block evicted from HBM one tier down, what that pushes out one further, and so on; the last is dropped.

    So is one that would be written into a tier whose link is behind by more than the write buffer holds.
    """
    source = HBM
    target = stack.below[HBM]
    while target != NONE:
        if stack.write_free_s[target] > time_s + stack.write_buffer_s:
            stack.dropped_blocks[target] += 1
            return
        pushed_out = NONE
        if stack.used_blocks[target] == stack.capacity_blocks[target]:
            pushed_out = calls.victim(policies.functions, policies.states[target], lower_pins(stack), time_s)
            if pushed_out == NONE:
                return
            _leave_tier(stack, target, pushed_out)
        where(stack)[block] |= 1 << target
        stack.used_blocks[target] += 1
        stack.peak_blocks[target] = max(stack.peak_blocks[target], stack.used_blocks[target])
        calls.insert(policies.functions, policies.states[target], block, time_s)
        _count_move(stack, source, target, DEMOTE)
        if pushed_out == NONE:
            return
        block, source, target = pushed_out, target, stack.below[target]
