"""State of the tier stack of one instance: its records, and how they are made.

A stack is a record (see records.py), and so is each of its tiers: HBM, DRAM, SSD, REMOTE by index. A tier below HBM may
be one that other instances use too. U distinct blocks.

Stack. where: (U,) bit t set: resident in tier t of its own; shared_where: addresses of the same of tiers shared within
a node and in the cluster, 0 without. pins: (U,) running requests that use the block in HBM; spared: (U,) 1 for
blocks of HBM that tiers below keep, else zeros. uses, entries: (U,) times that a block was computed or hit, and came
into the first tier below HBM, up to 255, or (1,); next_write: (U,) list of blocks to be written,
or (1,). below: (4,) tier that takes what tier t writes, -1 if there is none. pinned_blocks: blocks of HBM with a user.
private_blocks: anonymous blocks of HBM. hit_blocks, evicted_blocks, dropped_blocks: (4,) by tier, of this instance;
dropped: not written, because the link was behind. missed_blocks: misses recorded. pending_blocks, moved_blocks: (4, 4,
causes) by source, target, cause: not yet taken by the engine; in total. free_s, latency_s, block_s: (4, 4) when the
link is free by what it was last charged, and what a transfer and a block of it take; all 0 outside a simulation.
frames: (4,) see `put`.

Tier. ready_s: (U,) from when a block is there, or (1,) in HBM. used_block_seconds: integral of used_blocks up to
last_s. used and peak include private blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState
from pipeline.eviction.facts import BlockFacts
from pipeline.placement.base import CAUSES, LOAD_RULES, WRITE_POLICIES, WRITE_SELECTIVE, WRITE_THROUGH, Placement, int64
from pipeline.records import bytes_at, make_record, view_bytes, view_floats, view_ints
from pipeline.values import TIERS

Ints = NDArray[np.int64]
Stack = np.record
Tier = np.record

HBM, DRAM, SSD, REMOTE = map(int64, range(4))
NONE = -1
IN_HBM = 1
"""Bit of HBM."""
MOST_USES = 255
NODE, CLUSTER = range(2)
"""Which of the shared arrays a tier's bits stand in."""


class StackTiers(NamedTuple):
    """The tiers of a stack, what their eviction policy keeps of each, and its operations."""

    tiers: tuple[Tier, Tier, Tier, Tier]
    states: tuple[PolicyState, PolicyState, PolicyState, PolicyState]
    functions: PolicyFunctions


class SharedTier(NamedTuple):
    """A tier below HBM that several stacks use; where: (U,) bit t set: resident in tier t, of all tiers so shared."""

    tier: Tier
    state: PolicyState
    where: NDArray[np.uint8]
    scope: int


_FRAME = np.dtype(
    [*((name, np.int64) for name in ("block", "source", "cause", "evictions")), ("entered", np.bool_)], align=True
)
_TIERS, _PAIRS, _MOVES = (4,), (4, 4), (4, 4, len(CAUSES))
_STACK: list[tuple[Any, ...]] = [
    *((name, np.int64, _TIERS) for name in ("below", "hit_blocks", "evicted_blocks", "dropped_blocks")),
    *((name, np.int64) for name in ("pinned_blocks", "private_blocks", "missed_blocks")),
    ("shared_where", np.int64, (2,)),
    ("pending_blocks", np.int64, _MOVES),
    ("moved_blocks", np.int64, _MOVES),
    ("pending_count", np.int64),
    ("frames", _FRAME, _TIERS),
    *((name, np.float64, _PAIRS) for name in ("free_s", "latency_s", "block_s")),
    # Rules: see Placement. write_policy, lower_write_policy, load_rule: indices; first_write, last_write: of the list.
    *((name, np.int64) for name in ("write_policy", "lower_write_policy", "load_rule", "write_threshold")),
    ("lower_write_threshold", np.int64),
    *((name, np.bool_) for name in ("inclusive", "keeps_on_the_way", "writes_output", "hits_count_below")),
    *(
        (name, np.bool_)
        for name in ("leaf_first", "hits_leaf_first", "spares_hbm", "waits", "times_writes", "puts_one")
    ),
    ("hbm_keeps_unused", np.bool_),
    *((name, np.int64) for name in ("least_load_tokens", "first_write", "last_write")),
    *((name, np.float64) for name in ("write_buffer_s", "delay_weight", "deadline_s")),
]
_TIER: list[tuple[Any, ...]] = [
    *((name, np.int64) for name in ("capacity_blocks", "used_blocks", "peak_blocks")),
    *((name, np.int64) for name in ("evict_at_blocks", "evict_blocks", "where_address", "block_count", "stack_count")),
    ("used_block_seconds", np.float64),
    ("last_s", np.float64),
]


def _empty_stack(block_count: int, counts_uses: bool, counts_entries: bool, lists_writes: bool) -> Stack:
    arrays: dict[str, NDArray[Any]] = {
        "where": np.zeros(block_count, np.uint8),
        "pins": np.zeros(block_count, np.int32),
        "spared": np.zeros(block_count, np.int32),
        "uses": np.zeros(block_count if counts_uses else 1, np.uint8),
        "entries": np.zeros(block_count if counts_entries else 1, np.uint8),
        "next_write": np.full(block_count if lists_writes else 1, NONE, np.int32),
    }
    return make_record(_STACK, arrays)


def _make_tier(block_count: int, capacity: int, is_lower: bool, placement: Placement, where_address: int) -> Tier:
    tier = make_record(_TIER, {"ready_s": np.zeros(block_count if is_lower and capacity else 1)})
    tier.capacity_blocks = capacity
    tier.block_count = block_count
    tier.stack_count = 1
    tier.where_address = where_address
    # A millionth of slack, so that 0.9 of 10 blocks is 9.
    tier.evict_at_blocks = max(int(placement.evict_at_ratio * capacity + 1e-6), 1) if is_lower else capacity
    tier.evict_blocks = max(int(placement.evict_ratio * capacity + 1e-6), 1)
    return tier


def make_shared_tier(
    tier: int,
    block_count: int,
    capacity_blocks: int,
    eviction: EvictionPolicy,
    placement: Placement,
    scope: int,
    where: NDArray[np.uint8],
    facts: BlockFacts | None = None,
) -> SharedTier:
    """Make an empty tier below HBM for several stacks; `where` (U,) holds the bits of all tiers of that scope."""
    if tier == HBM or where.size != block_count:
        raise ValueError(f"shared tier: given tier {tier} and {where.size} places for {block_count} blocks")
    made = _make_tier(block_count, capacity_blocks, True, placement, where.ctypes.data)
    made.stack_count = 0
    return SharedTier(made, eviction.state(block_count, capacity_blocks, facts), where, scope)


def make_stack(
    block_count: int,
    capacity_blocks: Ints,
    eviction: EvictionPolicy,
    placement: Placement,
    facts: BlockFacts | None = None,
    shared: Mapping[int, SharedTier] | None = None,
) -> tuple[Stack, StackTiers]:
    """Make the empty stack of one instance.

    block_count: distinct blocks in the trace. capacity_blocks: (4,) by tier; a tier of zero blocks is left out, and
    what is written goes on to the next one. facts: for a policy that asks; the caller keeps them, and the tiers in
    `shared`, which stand in for those of the same index.
    """
    capacity = np.array(capacity_blocks, np.int64)
    if capacity.shape != (len(TIERS),) or capacity.min() < 0:
        raise ValueError(f"capacity_blocks: given {capacity_blocks}, expected {len(TIERS)} counts, none negative")
    policy = WRITE_POLICIES.index(placement.write_policy)
    lower_policy = WRITE_POLICIES.index(placement.lower_write_policy)
    counts = policy == WRITE_SELECTIVE, lower_policy == WRITE_SELECTIVE
    stack = _empty_stack(block_count, *counts, lists_writes=policy >= WRITE_THROUGH)
    where_address = int(stack["address"]) + int(stack.where_at)
    tiers, states = [], []
    for tier, blocks in enumerate(capacity.tolist()):
        if shared and tier in shared:
            given = shared[tier]
            given.tier.stack_count += 1
            stack.shared_where[given.scope] = given.where.ctypes.data
            capacity[tier] = given.tier.capacity_blocks
            tiers.append(given.tier)
            states.append(given.state)
        else:
            tiers.append(_make_tier(block_count, blocks, tier != HBM, placement, where_address))
            states.append(eviction.state(block_count if blocks else 0, blocks, facts))
    stack.write_policy, stack.lower_write_policy = policy, lower_policy
    _set_rules(stack, placement)
    stack.below[:] = _below(capacity, policy)
    stack.puts_one = lower_policy < WRITE_THROUGH and all(tier.evict_blocks == 1 for tier in tiers[DRAM:])
    return stack, StackTiers(tuple(tiers), tuple(states), eviction.functions())  # type: ignore[arg-type]


def _set_rules(stack: Stack, placement: Placement) -> None:
    stack.write_threshold = min(placement.write_threshold or 1, MOST_USES)
    stack.lower_write_threshold = min(placement.lower_write_threshold or 1, MOST_USES)
    stack.inclusive = placement.inclusion == "inclusive"
    for name in ("keeps_on_the_way", "writes_output", "hits_count_below", "spares_hbm", "hbm_keeps_unused"):
        stack[name] = getattr(placement, name)
    stack.leaf_first = placement.lower_order == "leaf_first"
    stack.hits_leaf_first = placement.lower_order != "root_first"
    stack.waits = placement.when_writes_lag == "wait"
    stack.write_buffer_s = placement.write_buffer_s
    stack.load_rule = LOAD_RULES.index(placement.load_or_recompute)
    stack.least_load_tokens = placement.least_load_tokens
    stack.delay_weight = placement.delay_weight
    stack.deadline_s = np.inf if placement.deadline_s is None else placement.deadline_s
    stack.first_write = stack.last_write = NONE


def _below(capacity: Ints, policy: int) -> Ints:
    below = np.full(len(TIERS), NONE, np.int64)
    if policy:
        kept = [tier for tier in range(len(TIERS)) if tier == HBM or capacity[tier] > 0]
        below[kept[:-1]] = kept[1:]
    return below


STACK_TYPE = typeof(_empty_stack(1, False, False, False))
TIER_TYPE = typeof(make_record(_TIER, {"ready_s": np.zeros(1)}))


@njit(cache=True)
def where(stack: Stack) -> NDArray[np.uint8]:
    """View the tiers of its own that hold each block, (U,)."""
    return view_bytes(stack, stack.where_at, stack.where_rows)


@njit(cache=True)
def where_in(tier: Tier) -> NDArray[np.uint8]:
    """View the bits that a tier's stand among, (U,)."""
    return carray(bytes_at(tier.where_address), (tier.block_count,))


@njit(cache=True)
def ready_s(tier: Tier) -> NDArray[np.float64]:
    """View from when each block is there in a tier below HBM, (U,)."""
    return view_floats(tier, tier.ready_s_at, tier.ready_s_rows)


@njit(cache=True)
def pins(stack: Stack) -> NDArray[np.int32]:
    """View the users of each block in HBM, (U,)."""
    return view_ints(stack, stack.pins_at, stack.pins_rows)


@njit(cache=True)
def spared(stack: Stack) -> NDArray[np.int32]:
    """View 1 for each block that the tiers below HBM keep, (U,)."""
    return view_ints(stack, stack.spared_at, stack.spared_rows)


@njit(cache=True)
def entries(stack: Stack) -> NDArray[np.uint8]:
    """View how often each block came into the first tier below HBM, (U,) or (1,)."""
    return view_bytes(stack, stack.entries_at, stack.entries_rows)


@njit(cache=True)
def uses(stack: Stack) -> NDArray[np.uint8]:
    """View the uses of each block, (U,) or (1,)."""
    return view_bytes(stack, stack.uses_at, stack.uses_rows)


@njit(cache=True)
def next_write(stack: Stack) -> NDArray[np.int32]:
    """View the list of blocks to be written, (U,) or (1,): the next one, itself for the last, -1 outside."""
    return view_ints(stack, stack.next_write_at, stack.next_write_rows)
