"""The tier stack and a plain Python model of it, side by side, under random requests that share prefixes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from eviction_cases import facts_of, some_chains
from eviction_models import MODELS
from eviction_score_models import Chains
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_model import StackModel, TierModel
from placement_stacks import BLOCKS, moved, new_shared, new_stack, placement_of, residents, used_blocks

from pipeline.placement.base import ONBOARD, Placement
from pipeline.placement.checks import check_invariants
from pipeline.placement.lower import write_listed
from pipeline.placement.stack import acquire, commit, free_private, match, record_misses, release, reserve
from pipeline.placement.state import HBM, SharedTier

STEPS = 120
COMPARED_EVERY = 4


# Chains of a prefix tree: a block's parent is (block - 1) // 2, so that requests share prefixes.
def chain_of(leaf: int) -> list[int]:
    chain = [leaf]
    while chain[-1] > 0:
        chain.append((chain[-1] - 1) // 2)
    return chain[::-1]


class Twin:
    """The stack and its model side by side, with the requests that run on them."""

    def __init__(
        self,
        capacity: list[int],
        policy: str,
        rules: Placement,
        chains: Chains,
        shared: dict[int, tuple[SharedTier, TierModel]],
    ) -> None:
        self.facts = facts_of(chains, BLOCKS)
        stacks = {tier: stack for tier, (stack, _) in shared.items()}
        self.stack, self.tiers = new_stack(
            capacity, policy, facts=self.facts, shared=stacks, **rules.model_dump(exclude={"name"})
        )
        self.model = StackModel(capacity, policy, rules, chains, {tier: model for tier, (_, model) in shared.items()})
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
            is_output = pinned > 2
            commit(self.stack, self.tiers, chain[pinned], is_output, time_s)
            self.model.commit(chain[pinned], is_output)
            self.running[which] = (chain, pinned + 1, private - 1)

    def finish(self, which: int, time_s: float) -> None:
        chain, pinned, private = self.running.pop(which)
        release(self.stack, self.tiers, np.array(chain, np.int64), 0, pinned, time_s)
        self.model.release(chain[:pinned])
        free_private(self.stack, self.tiers, private)
        self.model.private -= private

    def write(self, time_s: float) -> None:
        write_listed(self.stack, self.tiers, time_s)
        self.model.write_listed()

    def do(self, draw: random.Random, time_s: float) -> None:
        operation = draw.choice(["arrive", "extend", "commit", "commit", "finish", "write"])
        if operation == "arrive":
            if len(self.running) < 4:
                self.arrive(chain_of(draw.randrange(BLOCKS)), time_s)
        elif operation == "write":
            self.write(time_s)
        elif self.running:
            getattr(self, operation)(draw.randrange(len(self.running)), time_s)

    def compare(self) -> None:
        stack, tiers, model = self.stack, self.tiers, self.model
        assert check_invariants(stack, tiers) == []
        assert residents(tiers) == model.resident
        assert used_blocks(tiers) == model.used
        assert (stack.private_blocks, stack.pinned_blocks) == (model.private, len(model.pinned))
        assert model.pinned <= model.resident[HBM]
        assert moved(stack) == dict(model.moves)
        for counted in ("hits", "evicted", "dropped"):
            expected = [getattr(model, counted)[tier] for tier in range(4)]
            assert stack[f"{counted.removesuffix('s')}_blocks"].tolist() == expected, counted


def compare_all(
    seed: int, capacity: list[int], policy: str, rules: Placement, shared_blocks: dict[int, int] | None = None
) -> None:
    """Run one twin, or two that share tiers of so many blocks."""
    draw = random.Random(seed)
    chains = some_chains(draw, BLOCKS)
    facts = facts_of(chains, BLOCKS)
    changes: dict[str, Any] = rules.model_dump(exclude={"name"})
    made = new_shared(shared_blocks or {}, policy, facts, **changes)
    shared = {t: (one, TierModel((shared_blocks or {})[t], policy, chains, rules)) for t, one in made.items()}
    twins = [Twin(capacity, policy, rules, chains, shared) for _ in range(2 if shared else 1)]
    for step in range(STEPS):
        twin = draw.choice(twins)
        twin.model.set_time(float(step))
        twin.do(draw, float(step))
        if step % COMPARED_EVERY == 0:
            twin.compare()
    for twin in twins:
        twin.model.set_time(float(STEPS))
        twin.write(float(STEPS))
        while twin.running:
            twin.finish(0, float(STEPS))
    for twin in twins:
        twin.compare()
        assert twin.stack.pinned_blocks == twin.stack.private_blocks == 0


@st.composite
def capacities(draw: Any) -> list[int]:
    lower = [draw(st.sampled_from(sizes)) for sizes in ((0, 1, 3, 5), (0, 2, 7), (0, 0, 8))]
    return [draw(st.integers(2, 14)), *lower]


@st.composite
def all_rules(draw: Any) -> Placement:
    """Every rule that moves blocks."""
    flag, threshold = st.booleans(), st.sampled_from([1, 2, 3])
    inclusive = draw(st.sampled_from([True, True, False]))
    policies = ["none", "write_back", *(["write_through", "write_through_selective"] if inclusive else [])]
    write, lower = draw(st.sampled_from(policies)), draw(st.sampled_from(policies))
    return placement_of(
        inclusion="inclusive" if inclusive else "exclusive",
        write_policy=write,
        write_threshold=draw(threshold) if write == "write_through_selective" else None,
        lower_write_policy=lower,
        lower_write_threshold=draw(threshold) if lower == "write_through_selective" else None,
        writes_output=draw(flag),
        lower_order=draw(st.sampled_from(["root_first", "leaf_first", "leaf_first_once_hit"])),
        keeps_on_the_way=inclusive and draw(flag),
        hits_count_below=inclusive and draw(flag),
        spares_hbm=inclusive and draw(flag),
        evict_at_ratio=draw(st.sampled_from([1.0, 0.75, 0.5])),
        evict_ratio=draw(st.sampled_from([0.0, 0.25, 0.5])),
    )


FEW_RULES = {
    "exclusive": {},
    "write_back": {"inclusion": "inclusive", "keeps_on_the_way": True},
    "write_through": {
        "inclusion": "inclusive",
        "write_policy": "write_through",
        "lower_write_policy": "write_through",
        "lower_order": "leaf_first",
        "hits_count_below": True,
        "evict_ratio": 0.5,
    },
    "spares_hbm": {
        "inclusion": "inclusive",
        "write_policy": "write_through_selective",
        "write_threshold": 2,
        "spares_hbm": True,
    },
}
SEEDS = st.integers(0, 1 << 30)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, capacity=capacities(), rules=all_rules())
def test_random_requests_do_what_the_plain_model_does_by_all_rules(
    seed: int, capacity: list[int], rules: Placement
) -> None:
    compare_all(seed, capacity, "lru", rules)


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    capacity=capacities(),
    rules=all_rules(),
    shared_blocks=st.sampled_from([{1: 4}, {2: 5}, {3: 6}, {1: 3, 3: 9}, {1: 2, 2: 6}, {1: 0, 3: 7}]),
)
def test_two_stacks_share_tiers_as_the_plain_model_does(
    seed: int, capacity: list[int], rules: Placement, shared_blocks: dict[int, int]
) -> None:
    compare_all(seed, capacity, "lru", rules, shared_blocks)


@pytest.mark.parametrize("policy", sorted(MODELS))
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS, capacity=capacities(), name=st.sampled_from(sorted(FEW_RULES)))
def test_random_requests_do_what_the_plain_model_does_by_all_policies(
    policy: str, seed: int, capacity: list[int], name: str
) -> None:
    compare_all(seed, capacity, policy, placement_of(**FEW_RULES[name]))
