"""State of the tier stack of one instance, and what must always hold of it.

A stack is a record (see records.py). U distinct blocks; tiers by index HBM, DRAM, SSD, REMOTE.

where(stack): (U,) bit t set: resident in tier t. pins(stack): (U,) running requests that use the block in HBM.
lower_pins(stack): (U,) likewise for a copy below HBM.
below: (4,) tier that takes what tier t evicts, -1 if it is dropped.
capacity_blocks, used_blocks, peak_blocks, hit_blocks, evicted_blocks: (4,); used and peak include private blocks.
pinned_blocks: blocks of HBM with a user. private_blocks: anonymous blocks of HBM. missed_blocks: misses recorded.
pending_blocks, moved_blocks: (4, 4, causes) by source, target, cause: not yet taken by the engine; in total.
load_rule: index into LOAD_RULES; delay_weight, deadline_s: see Placement.
used_block_seconds: (4,) integral of used_blocks up to last_s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState
from pipeline.eviction.facts import BlockFacts
from pipeline.placement.base import CAUSES, LOAD_RULES, Placement
from pipeline.records import make_record, view_bytes, view_ints
from pipeline.values import TIERS

Ints = NDArray[np.int64]
Stack = np.record

HBM, DRAM, SSD, REMOTE = range(4)
NONE = -1
IN_HBM = 1 << HBM


class StackPolicies(NamedTuple):
    """Eviction state of each tier, and the operations they share."""

    states: tuple[PolicyState, PolicyState, PolicyState, PolicyState]
    functions: PolicyFunctions


def _numbers() -> list[tuple[Any, ...]]:
    tiers, moves = (len(TIERS),), (len(TIERS), len(TIERS), len(CAUSES))
    by_tier = (
        "below",
        "capacity_blocks",
        "used_blocks",
        "peak_blocks",
        "hit_blocks",
        "evicted_blocks",
        "dropped_blocks",
    )
    return [
        *((name, np.int64, tiers) for name in by_tier),
        *((name, np.int64) for name in ("pinned_blocks", "private_blocks", "missed_blocks")),
        ("pending_blocks", np.int64, moves),
        ("moved_blocks", np.int64, moves),
        ("used_block_seconds", np.float64, tiers),
        ("last_s", np.float64),
        ("write_free_s", np.float64, tiers),
        ("write_buffer_s", np.float64),
        ("load_rule", np.int64),
        ("delay_weight", np.float64),
        ("deadline_s", np.float64),
    ]


def _empty(block_count: int) -> Stack:
    arrays = {"where": np.uint8, "pins": np.int32, "lower_pins": np.int32}
    return make_record(_numbers(), {name: np.zeros(block_count, kind) for name, kind in arrays.items()})


STACK_TYPE = typeof(_empty(1))


def make_stack(
    block_count: int,
    capacity_blocks: Ints,
    eviction: EvictionPolicy,
    placement: Placement,
    facts: BlockFacts | None = None,
) -> tuple[Stack, StackPolicies]:
    """Make the empty stack of one instance.

    block_count: distinct blocks in the trace. capacity_blocks: (4,) by tier; a tier of zero blocks is left out, and
    the tier above it passes evicted blocks on to the next one. facts: for a policy that asks; the caller keeps them.
    """
    capacity = np.array(capacity_blocks, np.int64)
    if capacity.shape != (len(TIERS),) or capacity.min() < 0:
        raise ValueError(f"capacity_blocks: given {capacity_blocks}, expected {len(TIERS)} counts, none negative")
    stack = _empty(block_count)
    stack.capacity_blocks[:] = capacity
    stack.below[:] = _below(capacity, placement)
    stack.write_buffer_s = placement.write_buffer_s
    stack.load_rule = LOAD_RULES.index(placement.load_or_recompute)
    stack.delay_weight = placement.delay_weight
    stack.deadline_s = np.inf if placement.deadline_s is None else placement.deadline_s
    hbm, dram, ssd, remote = (eviction.state(block_count if blocks else 0, int(blocks), facts) for blocks in capacity)
    return stack, StackPolicies((hbm, dram, ssd, remote), eviction.functions())


@njit(cache=True)
def where(stack: Stack) -> NDArray[np.uint8]:
    """View the tiers of each block, (U,)."""
    return view_bytes(stack, stack.where_at, stack.where_rows)


@njit(cache=True)
def pins(stack: Stack) -> NDArray[np.int32]:
    """View the users of each block in HBM, (U,)."""
    return view_ints(stack, stack.pins_at, stack.pins_rows)


@njit(cache=True)
def lower_pins(stack: Stack) -> NDArray[np.int32]:
    """View the users of each block's copy below HBM, (U,)."""
    return view_ints(stack, stack.lower_pins_at, stack.lower_pins_rows)


def _below(capacity: Ints, placement: Placement) -> Ints:
    below = np.full(len(TIERS), NONE, np.int64)
    if placement.demote:
        kept = [tier for tier in range(len(TIERS)) if tier == HBM or capacity[tier] > 0]
        below[kept[:-1]] = kept[1:]
    return below


@njit(cache=True)
def _snapshot(stack: Stack) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
    return where(stack).copy(), pins(stack).copy(), lower_pins(stack).copy()


def lookup_blocks(stack: Stack) -> Ints:
    """Blocks looked up in each tier, (4,): those that no faster tier held, hits and misses."""
    hits: Ints = stack.hit_blocks
    return hits[::-1].cumsum()[::-1] + stack.missed_blocks


def check_invariants(stack: Stack) -> list[str]:
    """List what is wrong with the stack, one line each; empty if nothing is."""
    tiers_of, users, lower_users = _snapshot(stack)
    wrong = []
    for tier, name in enumerate(TIERS):
        used, capacity, peak = (int(x[tier]) for x in (stack.used_blocks, stack.capacity_blocks, stack.peak_blocks))
        held = int(np.count_nonzero(tiers_of & (1 << tier))) + (int(stack.private_blocks) if tier == HBM else 0)
        if held != used:
            wrong.append(f"{name}: {used} blocks counted as used, but {held} are held")
        if not 0 <= used <= peak <= capacity:
            wrong.append(f"{name}: {used} blocks used, peak {peak}, capacity {capacity}")
    pinned = int(np.count_nonzero(users))
    if min(users.min(initial=0), lower_users.min(initial=0), stack.private_blocks, stack.missed_blocks) < 0:
        wrong.append("more blocks were released than taken")
    if np.any((users > 0) & (tiers_of & IN_HBM == 0)):
        wrong.append("hbm: a pinned block is not resident")
    if pinned != stack.pinned_blocks:
        wrong.append(f"hbm: {stack.pinned_blocks} blocks counted as pinned, but {pinned} are")
    if np.any(stack.pending_blocks > stack.moved_blocks):
        wrong.append("more blocks wait to be charged to a link than moved")
    return wrong
