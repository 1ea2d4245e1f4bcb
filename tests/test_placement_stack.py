"""The tier stack: hand-worked moves, what it refuses, and what it counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from placement_stacks import moved, new_stack, residents, used_blocks

from pipeline.placement.base import CAUSES, DEMOTE, ONBOARD
from pipeline.placement.checks import check_invariants, lookup_blocks
from pipeline.placement.stack import (
    account,
    acquire,
    can_hold,
    commit,
    free_private,
    match,
    record_misses,
    release,
    reserve,
    take_pending,
)
from pipeline.placement.state import DRAM, HBM, SSD, pins, where


def serve(stack: Any, tiers: Any, chain: list[int], time_s: float = 0.0) -> None:
    """Run one request alone: look up, bring up, compute the rest, let go."""
    ids = np.array(chain, np.int64)
    hits = match(stack, tiers, ids, 0, ids.size, time_s)
    assert acquire(stack, tiers, ids, 0, hits, ONBOARD, time_s)[0]
    record_misses(stack, ids.size - hits)
    assert reserve(stack, tiers, ids.size - hits, time_s)
    for block in chain[hits:]:
        commit(stack, tiers, block, False, time_s)
    release(stack, tiers, ids, 0, ids.size, time_s)


def test_a_chain_is_demoted_leaf_first_and_comes_back_when_it_is_hit() -> None:
    stack, tiers = new_stack([3, 2, 2, 0])
    serve(stack, tiers, [0, 1, 2])
    serve(stack, tiers, [3, 4])  # pushes out 2 and 1, the leaves
    assert residents(tiers) == [{0, 3, 4}, {1, 2}, set(), set()]
    serve(stack, tiers, [5, 6])  # pushes out 0, then 4, the leaf of the second: DRAM passes on 2, then 1
    assert residents(tiers) == [{3, 5, 6}, {0, 4}, {1, 2}, set()]
    assert moved(stack) == {(HBM, DRAM, "demote"): 4, (DRAM, SSD, "demote"): 2}
    ids = np.array([0, 1, 2], np.int64)
    assert match(stack, tiers, ids, 0, 3, 1.0) == 3
    # All three leave their tiers before 3, 6 and 5 come down: so nothing is lost. (6 is a leaf, 5 its root.)
    assert acquire(stack, tiers, ids, 0, 3, ONBOARD, 1.0) == (True, 0, 1, 2, 0)
    assert residents(tiers) == [{0, 1, 2}, {5, 6}, {3, 4}, set()]
    assert stack.hit_blocks.tolist() == [0, 1, 2, 0]
    assert stack.evicted_blocks.tolist() == [7, 4, 0, 0]
    assert moved(stack)[DRAM, HBM, "onboard"] == 1
    assert moved(stack)[SSD, HBM, "onboard"] == 2
    assert check_invariants(stack, tiers) == []


def test_the_last_tier_drops_and_gpu_only_keeps_nothing_below() -> None:
    stack, tiers = new_stack([2, 1, 0, 0])
    serve(stack, tiers, [0, 1])
    serve(stack, tiers, [2, 3])
    assert residents(tiers) == [{2, 3}, {0}, set(), set()]
    assert match(stack, tiers, np.array([0, 1], np.int64), 0, 2, 0.0) == 1
    stack, tiers = new_stack([2, 5, 5, 0], placement="gpu_only")
    serve(stack, tiers, [0, 1])
    serve(stack, tiers, [2, 3])
    assert residents(tiers) == [{2, 3}, set(), set(), set()]
    assert moved(stack) == {}
    assert stack.evicted_blocks.tolist() == [2, 0, 0, 0]


def test_a_tier_without_capacity_is_passed_over() -> None:
    stack, tiers = new_stack([1, 0, 2, 0])
    for block in (0, 1, 2):
        serve(stack, tiers, [block])
    assert residents(tiers) == [{2}, set(), {0, 1}, set()]
    assert moved(stack) == {(HBM, SSD, "demote"): 2}


def test_what_does_not_fit_changes_nothing() -> None:
    stack, tiers = new_stack([3, 4, 0, 0])
    serve(stack, tiers, [0, 1, 2])
    serve(stack, tiers, [3])  # pushes out 2
    assert reserve(stack, tiers, 1, 0.0)  # and 1
    before = stack.tobytes(), where(stack).tobytes(), pins(stack).tobytes()
    assert acquire(stack, tiers, np.array([0, 1, 2], np.int64), 0, 3, ONBOARD, 0.0) == (False, 0, 0, 0, 0)
    assert not reserve(stack, tiers, 3, 0.0)
    assert not can_hold(stack, tiers, 3)
    assert can_hold(stack, tiers, 2)
    assert before == (stack.tobytes(), where(stack).tobytes(), pins(stack).tobytes())
    assert acquire(stack, tiers, np.array([0, 1], np.int64), 0, 2, ONBOARD, 0.0) == (True, 1, 1, 0, 0)
    assert not can_hold(stack, tiers, 1)


def test_shared_blocks_are_pinned_by_each_user_and_a_twin_gives_its_private_block_back() -> None:
    stack, tiers = new_stack([4, 0, 0, 0])
    ids = np.array([7, 8], np.int64)
    assert reserve(stack, tiers, 4, 0.0)  # two requests compute the same two blocks
    for _ in range(2):
        commit(stack, tiers, 7, False, 0.0)
        commit(stack, tiers, 8, False, 0.0)
    assert (stack.pinned_blocks, stack.private_blocks, tiers.tiers[HBM].used_blocks) == (2, 0, 2)
    release(stack, tiers, ids, 0, 2, 0.0)
    assert stack.pinned_blocks == 2
    release(stack, tiers, ids, 0, 2, 0.0)
    assert (stack.pinned_blocks, tiers.tiers[HBM].used_blocks, tiers.tiers[HBM].peak_blocks) == (0, 2, 4)
    assert check_invariants(stack, tiers) == []


def test_a_block_computed_anew_replaces_its_copy_below() -> None:
    stack, tiers = new_stack([1, 1, 0, 0])
    serve(stack, tiers, [0])
    serve(stack, tiers, [1])
    assert residents(tiers)[:2] == [{1}, {0}]
    assert reserve(stack, tiers, 1, 0.0)  # pushes 1 down, which drops 0
    commit(stack, tiers, 1, False, 0.0)
    assert residents(tiers)[:2] == [{1}, set()]
    assert used_blocks(tiers) == [1, 0, 0, 0]
    assert stack.hit_blocks.sum() == 0
    assert check_invariants(stack, tiers) == []


def test_a_block_twice_in_a_chain_takes_one_place() -> None:
    stack, tiers = new_stack([1, 2, 0, 0])
    serve(stack, tiers, [0])
    serve(stack, tiers, [1])
    ids = np.array([0, 0], np.int64)
    assert acquire(stack, tiers, ids, 0, 2, ONBOARD, 0.0) == (True, 1, 1, 0, 0)
    release(stack, tiers, ids, 0, 2, 0.0)
    assert residents(tiers)[:2] == [{0}, {1}]
    assert check_invariants(stack, tiers) == []


def test_lookups_are_hits_and_misses_by_tier() -> None:
    stack, tiers = new_stack([2, 2, 2, 0])
    serve(stack, tiers, [0, 1])
    serve(stack, tiers, [2, 3])
    serve(stack, tiers, [2, 3])
    serve(stack, tiers, [0, 1, 4][:2])
    assert stack.hit_blocks.tolist() == [2, 2, 0, 0]
    assert stack.missed_blocks == 4
    assert lookup_blocks(stack).tolist() == [8, 6, 4, 4]


def test_pending_moves_are_told_once() -> None:
    stack, tiers = new_stack([1, 1, 0, 0])
    for block in (0, 1, 0):
        serve(stack, tiers, [block])
    out = np.full((4, 4, len(CAUSES)), -1, np.int64)
    assert stack.pending_count == 3
    take_pending(stack, out)
    assert out[HBM, DRAM, DEMOTE] == 2
    assert out[DRAM, HBM, ONBOARD] == 1
    assert out.sum() == 3
    assert stack.pending_count == 0
    take_pending(stack, out)
    assert not out.any()
    assert stack.moved_blocks.sum() == 3


def test_used_blocks_are_integrated_over_time() -> None:
    stack, tiers = new_stack([4, 4, 0, 0])
    assert reserve(stack, tiers, 3, 1.0)
    account(tiers, 3.0)  # three blocks for two seconds
    free_private(stack, tiers, 2)
    account(tiers, 7.0)  # one block for four seconds
    account(tiers, 5.0)  # the past adds nothing
    assert [tier.used_block_seconds for tier in tiers.tiers] == [10.0, 0.0, 0.0, 0.0]


def test_a_broken_stack_is_told() -> None:
    stack, tiers = new_stack([4, 0, 0, 0])
    serve(stack, tiers, [0, 1])
    tiers.tiers[HBM].used_blocks = 5
    where_wrong = check_invariants(stack, tiers)
    assert "hbm: 5 blocks counted as used, but 2 are held" in where_wrong
    assert any("capacity 4" in line for line in where_wrong)
    tiers.tiers[HBM].used_blocks = 2
    release(stack, tiers, np.array([0], np.int64), 0, 1, 0.0)
    assert "more blocks were released than taken" in check_invariants(stack, tiers)


def test_capacities_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 4 counts, none negative"):
        new_stack([1, 1, 1])
    with pytest.raises(ValueError, match="expected 4 counts, none negative"):
        new_stack([1, -1, 1, 0])
