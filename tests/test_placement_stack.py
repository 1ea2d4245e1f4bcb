"""The tier stack: hand-worked moves, what it refuses, and what it counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from placement_stacks import moved, new_stack, residents

from pipeline.placement.base import CAUSES, DEMOTE, ONBOARD
from pipeline.placement.stack import (
    DRAM,
    HBM,
    SSD,
    account,
    acquire,
    can_hold,
    check_invariants,
    commit,
    free_private,
    lookup_blocks,
    match,
    pins,
    record_misses,
    release,
    reserve,
    take_pending,
    where,
)


def serve(stack: Any, policies: Any, chain: list[int], time_s: float = 0.0) -> None:
    """Run one request alone: look up, bring up, compute the rest, let go."""
    ids = np.array(chain, np.int64)
    hits = match(stack, ids, 0, ids.size)
    assert acquire(stack, policies, ids, 0, hits, time_s)[0]
    record_misses(stack, ids.size - hits)
    assert reserve(stack, policies, ids.size - hits, time_s)
    for block in chain[hits:]:
        commit(stack, policies, block, time_s)
    release(stack, policies, ids, 0, ids.size, time_s)


def test_a_chain_is_demoted_leaf_first_and_comes_back_when_it_is_hit() -> None:
    stack, policies = new_stack([3, 2, 2, 0])
    serve(stack, policies, [0, 1, 2])
    serve(stack, policies, [3, 4])  # pushes out 2 and 1, the leaves
    assert residents(stack) == [{0, 3, 4}, {1, 2}, set(), set()]
    serve(stack, policies, [5, 6])  # pushes out 0, then 4, the leaf of the second: DRAM passes on 2, then 1
    assert residents(stack) == [{3, 5, 6}, {0, 4}, {1, 2}, set()]
    assert moved(stack) == {(HBM, DRAM, "demote"): 4, (DRAM, SSD, "demote"): 2}
    ids = np.array([0, 1, 2], np.int64)
    assert match(stack, ids, 0, 3) == 3
    # All three leave their tiers before 3, 6 and 5 come down: so nothing is lost. (6 is a leaf, 5 its root.)
    assert acquire(stack, policies, ids, 0, 3, 1.0) == (True, 0, 1, 2)
    assert residents(stack) == [{0, 1, 2}, {5, 6}, {3, 4}, set()]
    assert stack.hit_blocks.tolist() == [0, 1, 2, 0]
    assert stack.evicted_blocks.tolist() == [7, 4, 0, 0]
    assert moved(stack)[DRAM, HBM, "onboard"] == 1
    assert moved(stack)[SSD, HBM, "onboard"] == 2
    assert check_invariants(stack) == []


def test_the_last_tier_drops_and_gpu_only_keeps_nothing_below() -> None:
    stack, policies = new_stack([2, 1, 0, 0])
    serve(stack, policies, [0, 1])
    serve(stack, policies, [2, 3])
    assert residents(stack) == [{2, 3}, {0}, set(), set()]
    assert match(stack, np.array([0, 1], np.int64), 0, 2) == 1
    stack, policies = new_stack([2, 5, 5, 0], placement="gpu_only")
    serve(stack, policies, [0, 1])
    serve(stack, policies, [2, 3])
    assert residents(stack) == [{2, 3}, set(), set(), set()]
    assert moved(stack) == {}
    assert stack.evicted_blocks.tolist() == [2, 0, 0, 0]


def test_a_tier_without_capacity_is_passed_over() -> None:
    stack, policies = new_stack([1, 0, 2, 0])
    for block in (0, 1, 2):
        serve(stack, policies, [block])
    assert residents(stack) == [{2}, set(), {0, 1}, set()]
    assert moved(stack) == {(HBM, SSD, "demote"): 2}


def test_what_does_not_fit_changes_nothing() -> None:
    stack, policies = new_stack([3, 4, 0, 0])
    serve(stack, policies, [0, 1, 2])
    serve(stack, policies, [3])  # pushes out 2
    assert reserve(stack, policies, 1, 0.0)  # and 1
    before = stack.tobytes(), where(stack).tobytes(), pins(stack).tobytes()
    assert acquire(stack, policies, np.array([0, 1, 2], np.int64), 0, 3, 0.0) == (False, 0, 0, 0)
    assert not reserve(stack, policies, 3, 0.0)
    assert not can_hold(stack, 3)
    assert can_hold(stack, 2)
    assert before == (stack.tobytes(), where(stack).tobytes(), pins(stack).tobytes())
    assert acquire(stack, policies, np.array([0, 1], np.int64), 0, 2, 0.0) == (True, 1, 1, 0)
    assert not can_hold(stack, 1)


def test_shared_blocks_are_pinned_by_each_user_and_a_twin_gives_its_private_block_back() -> None:
    stack, policies = new_stack([4, 0, 0, 0])
    ids = np.array([7, 8], np.int64)
    assert reserve(stack, policies, 4, 0.0)  # two requests compute the same two blocks
    for _ in range(2):
        commit(stack, policies, 7, 0.0)
        commit(stack, policies, 8, 0.0)
    assert (stack.pinned_blocks, stack.private_blocks, stack.used_blocks[HBM]) == (2, 0, 2)
    release(stack, policies, ids, 0, 2, 0.0)
    assert stack.pinned_blocks == 2
    release(stack, policies, ids, 0, 2, 0.0)
    assert (stack.pinned_blocks, stack.used_blocks[HBM], stack.peak_blocks[HBM]) == (0, 2, 4)
    assert check_invariants(stack) == []


def test_a_block_computed_anew_replaces_its_copy_below() -> None:
    stack, policies = new_stack([1, 1, 0, 0])
    serve(stack, policies, [0])
    serve(stack, policies, [1])
    assert residents(stack)[:2] == [{1}, {0}]
    assert reserve(stack, policies, 1, 0.0)  # pushes 1 down, which drops 0
    commit(stack, policies, 1, 0.0)
    assert residents(stack)[:2] == [{1}, set()]
    assert stack.used_blocks.tolist() == [1, 0, 0, 0]
    assert stack.hit_blocks.sum() == 0
    assert check_invariants(stack) == []


def test_a_block_twice_in_a_chain_takes_one_place() -> None:
    stack, policies = new_stack([1, 2, 0, 0])
    serve(stack, policies, [0])
    serve(stack, policies, [1])
    ids = np.array([0, 0], np.int64)
    assert acquire(stack, policies, ids, 0, 2, 0.0) == (True, 1, 1, 0)
    release(stack, policies, ids, 0, 2, 0.0)
    assert residents(stack)[:2] == [{0}, {1}]
    assert check_invariants(stack) == []


def test_lookups_are_hits_and_misses_by_tier() -> None:
    stack, policies = new_stack([2, 2, 2, 0])
    serve(stack, policies, [0, 1])
    serve(stack, policies, [2, 3])
    serve(stack, policies, [2, 3])
    serve(stack, policies, [0, 1, 4][:2])
    assert stack.hit_blocks.tolist() == [2, 2, 0, 0]
    assert stack.missed_blocks == 4
    assert lookup_blocks(stack).tolist() == [8, 6, 4, 4]


def test_pending_moves_are_told_once() -> None:
    stack, policies = new_stack([1, 1, 0, 0])
    for block in (0, 1, 0):
        serve(stack, policies, [block])
    out = np.full((4, 4, len(CAUSES)), -1, np.int64)
    assert take_pending(stack, out) == 3
    assert out[HBM, DRAM, DEMOTE] == 2
    assert out[DRAM, HBM, ONBOARD] == 1
    assert out.sum() == 3
    assert take_pending(stack, out) == 0
    assert not out.any()
    assert stack.moved_blocks.sum() == 3


def test_used_blocks_are_integrated_over_time() -> None:
    stack, policies = new_stack([4, 4, 0, 0])
    assert reserve(stack, policies, 3, 1.0)
    account(stack, 3.0)  # three blocks for two seconds
    free_private(stack, 2)
    account(stack, 7.0)  # one block for four seconds
    account(stack, 5.0)  # the past adds nothing
    assert stack.used_block_seconds.tolist() == [10.0, 0.0, 0.0, 0.0]


def test_a_broken_stack_is_told() -> None:
    stack, policies = new_stack([4, 0, 0, 0])
    serve(stack, policies, [0, 1])
    stack.used_blocks[HBM] = 5
    where_wrong = check_invariants(stack)
    assert "hbm: 5 blocks counted as used, but 2 are held" in where_wrong
    assert any("capacity 4" in line for line in where_wrong)
    stack.used_blocks[HBM] = 2
    release(stack, policies, np.array([0], np.int64), 0, 1, 0.0)
    assert "more blocks were released than taken" in check_invariants(stack)


def test_capacities_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 4 counts, none negative"):
        new_stack([1, 1, 1])
    with pytest.raises(ValueError, match="expected 4 counts, none negative"):
        new_stack([1, -1, 1, 0])
