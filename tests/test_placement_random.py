"""The tier stack and a plain Python model of it, side by side, under random requests that share prefixes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from eviction_cases import facts_of, some_chains
from eviction_models import MODELS
from eviction_score_models import Chains
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_model import StackModel
from placement_stacks import BLOCKS, moved, new_stack, residents, used_blocks

from pipeline.placement.base import ONBOARD
from pipeline.placement.checks import check_invariants
from pipeline.placement.stack import (
    acquire,
    commit,
    free_private,
    match,
    record_misses,
    release,
    reserve,
)
from pipeline.placement.state import HBM


# Chains of a prefix tree: a block's parent is (block - 1) // 2, so that requests share prefixes.
def chain_of(leaf: int) -> list[int]:
    chain = [leaf]
    while chain[-1] > 0:
        chain.append((chain[-1] - 1) // 2)
    return chain[::-1]


class Twin:
    """The stack and its model side by side, with the requests that run on them."""

    def __init__(self, capacity: list[int], policy: str, placement: str, chains: Chains) -> None:
        self.facts = facts_of(chains, BLOCKS)
        self.stack, self.tiers = new_stack(capacity, policy, placement, facts=self.facts)
        self.model = StackModel(capacity, policy, placement == "tiered", chains)
        self.running: list[tuple[list[int], int, int]] = []  # chain, pinned, private

    def arrive(self, chain: list[int], time_s: float) -> None:
        ids = np.array(chain, np.int64)
        hits = match(self.stack, self.tiers, ids, 0, ids.size, time_s)
        assert hits == self.model.match(chain)
        got = acquire(self.stack, self.tiers, ids, 0, hits, ONBOARD, time_s)
        assert got == self.model.acquire(chain[:hits])
        if got[0]:
            record_misses(self.stack, len(chain) - hits)
            self.running.append((chain, hits, 0))

    def extend(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running.pop(which)
        more = min(2, len(chain) - pinned - private + 1)
        ok = reserve(self.stack, self.tiers, more, time_s)
        assert ok == self.model.reserve(more)
        self.running.insert(which, (chain, pinned, private + (more if ok else 0)))

    def commit(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running[which]
        if private > 0 and pinned < len(chain):
            commit(self.stack, self.tiers, chain[pinned], False, time_s)
            self.model.commit(chain[pinned])
            self.running[which] = (chain, pinned + 1, private - 1)

    def finish(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running.pop(which)
        release(self.stack, self.tiers, np.array(chain, np.int64), 0, pinned, time_s)
        self.model.release(chain[:pinned])
        free_private(self.stack, self.tiers, private)
        self.model.private -= private

    def compare(self) -> None:
        stack, tiers, model = self.stack, self.tiers, self.model
        assert check_invariants(stack, tiers) == []
        assert residents(tiers) == model.resident
        assert used_blocks(tiers) == model.used
        assert (stack.private_blocks, stack.pinned_blocks) == (model.private, len(model.pinned))
        assert model.pinned <= model.resident[HBM]
        assert moved(stack) == dict(model.moves)
        assert stack.hit_blocks.tolist() == [model.hits[tier] for tier in range(4)]
        assert stack.evicted_blocks.tolist() == [model.evicted[tier] for tier in range(4)]


@pytest.mark.parametrize("policy", sorted(MODELS))
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
    twin = Twin([*capacity, 0], policy, placement, some_chains(draw, BLOCKS))
    for step in range(150):
        twin.model.set_time(float(step))
        operation = draw.choice(["arrive", "extend", "commit", "commit", "finish"])
        if operation == "arrive":
            if len(twin.running) < 4:
                twin.arrive(chain_of(draw.randrange(BLOCKS)), float(step))
        elif twin.running:
            getattr(twin, operation)(draw.randrange(len(twin.running)), float(step))
        twin.compare()
    twin.model.set_time(150.0)
    while twin.running:
        twin.finish(0, 150.0)
    twin.compare()
    assert twin.stack.pinned_blocks == twin.stack.private_blocks == 0
