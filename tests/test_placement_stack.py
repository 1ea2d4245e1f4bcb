"""The tier stack: hand-worked moves, its invariants, and a plain Python model under random operations."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_model import StackModel

from pipeline.eviction.base import EvictionPolicy
from pipeline.placement.base import CAUSES, DEMOTE, ONBOARD, Placement
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
    make_stack,
    match,
    pins,
    record_misses,
    release,
    reserve,
    take_pending,
    where,
)
from pipeline.spec import build
from pipeline.values import TIERS

CONF = Path(__file__).resolve().parents[1] / "conf"
POLICIES = ("fifo", "lfu", "lru", "s3fifo", "sieve")
BLOCKS = 24


@cache
def option(group: str, name: str, kind: Any) -> Any:
    return build(yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), group, kind)


def new_stack(capacity: list[int], policy: str = "lru", placement: str = "tiered", blocks: int = BLOCKS) -> Any:
    eviction = option("eviction", policy, EvictionPolicy)
    return make_stack(blocks, np.array(capacity), eviction, option("placement", placement, Placement))


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


def residents(stack: Any) -> list[set[int]]:
    tiers_of = where(stack).copy()
    return [set(np.flatnonzero(tiers_of & (1 << tier)).tolist()) for tier in range(len(TIERS))]


def moved(stack: Any) -> dict[tuple[int, int, str], int]:
    found = np.argwhere(stack.moved_blocks)
    return {(int(s), int(t), CAUSES[c]): int(stack.moved_blocks[s, t, c]) for s, t, c in found}


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


# Chains of a prefix tree: a block's parent is (block - 1) // 2, so that requests share prefixes.
def chain_of(leaf: int) -> list[int]:
    chain = [leaf]
    while chain[-1] > 0:
        chain.append((chain[-1] - 1) // 2)
    return chain[::-1]


class Twin:
    """The stack and its model side by side, with the requests that run on them."""

    def __init__(self, capacity: list[int], policy: str, placement: str) -> None:
        self.stack, self.policies = new_stack(capacity, policy, placement)
        self.model = StackModel(capacity, policy, placement == "tiered")
        self.running: list[tuple[list[int], int, int]] = []  # chain, pinned, private

    def arrive(self, chain: list[int], time_s: float) -> None:
        ids = np.array(chain, np.int64)
        hits = match(self.stack, ids, 0, ids.size)
        assert hits == self.model.match(chain)
        got = acquire(self.stack, self.policies, ids, 0, hits, time_s)
        assert got == self.model.acquire(chain[:hits])
        if got[0]:
            record_misses(self.stack, len(chain) - hits)
            self.running.append((chain, hits, 0))

    def extend(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running.pop(which)
        more = min(2, len(chain) - pinned - private + 1)
        ok = reserve(self.stack, self.policies, more, time_s)
        assert ok == self.model.reserve(more)
        self.running.insert(which, (chain, pinned, private + (more if ok else 0)))

    def commit(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running[which]
        if private > 0 and pinned < len(chain):
            commit(self.stack, self.policies, chain[pinned], time_s)
            self.model.commit(chain[pinned])
            self.running[which] = (chain, pinned + 1, private - 1)

    def finish(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running.pop(which)
        release(self.stack, self.policies, np.array(chain, np.int64), 0, pinned, time_s)
        self.model.release(chain[:pinned])
        free_private(self.stack, private)
        self.model.private -= private

    def compare(self) -> None:
        stack, model = self.stack, self.model
        assert check_invariants(stack) == []
        assert residents(stack) == model.resident
        assert stack.used_blocks.tolist() == model.used
        assert (stack.private_blocks, stack.pinned_blocks) == (model.private, len(model.pinned))
        assert model.pinned <= model.resident[HBM]
        assert moved(stack) == dict(model.moves)
        assert stack.hit_blocks.tolist() == [model.hits[tier] for tier in range(4)]
        assert stack.evicted_blocks.tolist() == [model.evicted[tier] for tier in range(4)]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    capacity=st.tuples(st.integers(2, 14), st.integers(0, 5), st.integers(0, 7)),
    placement=st.sampled_from(["tiered", "tiered", "gpu_only"]),
)
def test_random_requests_do_what_the_plain_model_does(
    policy: str, seed: int, capacity: tuple[int, int, int], placement: str
) -> None:
    draw = random.Random(seed)
    twin = Twin([*capacity, 0], policy, placement)
    for step in range(150):
        operation = draw.choice(["arrive", "extend", "commit", "commit", "finish"])
        if operation == "arrive":
            if len(twin.running) < 4:
                twin.arrive(chain_of(draw.randrange(BLOCKS)), float(step))
        elif twin.running:
            getattr(twin, operation)(draw.randrange(len(twin.running)), float(step))
        twin.compare()
    while twin.running:
        twin.finish(0, 150.0)
    twin.compare()
    assert twin.stack.pinned_blocks == twin.stack.private_blocks == 0
