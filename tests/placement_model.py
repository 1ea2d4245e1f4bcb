"""A plain Python model of the tier stack: slow, written from its definition, sharing no code with the package."""

from __future__ import annotations

from collections import Counter

from eviction_models import make_model
from eviction_score_models import Chains

HBM = 0


class StackModel:
    """Sets of blocks by tier, users by block, and a policy model per tier."""

    def __init__(self, capacity: list[int], policy: str, demote: bool, chains: Chains) -> None:
        self.capacity = capacity
        self.policies = [make_model(policy, blocks, chains) for blocks in capacity]
        self.below = [t for t in (1, 2, 3) if capacity[t] > 0] if demote else []
        self.resident: list[set[int]] = [set() for _ in capacity]
        self.pins: Counter[int] = Counter()
        self.private = 0
        self.moves: Counter[tuple[int, int, str]] = Counter()
        self.hits: Counter[int] = Counter()
        self.evicted: Counter[int] = Counter()

    def set_time(self, now_s: float) -> None:
        for policy in self.policies:
            policy.now_s = now_s

    @property
    def pinned(self) -> set[int]:
        return {block for block, users in self.pins.items() if users > 0}

    @property
    def used(self) -> list[int]:
        return [len(blocks) + (self.private if t == HBM else 0) for t, blocks in enumerate(self.resident)]

    def tier_of(self, block: int) -> int | None:
        return next((t for t, blocks in enumerate(self.resident) if block in blocks), None)

    def match(self, chain: list[int]) -> int:
        return next((i for i, block in enumerate(chain) if self.tier_of(block) is None), len(chain))

    def fits(self, more_in_use: int) -> bool:
        return len(self.pinned) + self.private + more_in_use <= self.capacity[HBM]

    def make_room(self, blocks: int) -> None:
        while self.used[HBM] + blocks > self.capacity[HBM]:
            self.evict(HBM)

    def evict(self, tier: int) -> None:
        block = self.policies[tier].victim(self.pins if tier == HBM else {})
        assert block in self.resident[tier]
        self.resident[tier].remove(block)
        self.evicted[tier] += 1
        target = next((t for t in self.below if t > tier), None)
        if target is None:
            return
        if len(self.resident[target]) == self.capacity[target]:
            self.evict(target)
        self.resident[target].add(block)
        self.policies[target].insert(block)
        self.moves[tier, target, "demote"] += 1

    def acquire(self, chain: list[int]) -> tuple[bool, int, int, int, int]:
        if not self.fits(len(set(chain) - self.pinned)):
            return False, 0, 0, 0, 0
        found = {block: self.tier_of(block) for block in chain}
        for block in chain:
            self.pins[block] += 1
        for block, tier in found.items():
            assert tier is not None
            if tier != HBM:
                self.resident[tier].remove(block)
                self.policies[tier].remove(block)
                self.moves[tier, HBM, "onboard"] += 1
        self.make_room(sum(tier != HBM for tier in found.values()))
        for block in chain:
            self._use(block)
        lower = Counter(tier for tier in found.values() if tier != HBM)
        self.hits += lower
        in_hbm = len(chain) - lower.total()
        self.hits[HBM] += in_hbm
        return True, in_hbm, lower[1], lower[2], lower[3]

    def _use(self, block: int) -> None:
        if block in self.resident[HBM]:
            self.policies[HBM].touch(block)
        else:
            self.resident[HBM].add(block)
            self.policies[HBM].insert(block)

    def reserve(self, blocks: int) -> bool:
        if not self.fits(blocks):
            return False
        self.make_room(blocks)
        self.private += blocks
        return True

    def commit(self, block: int) -> None:
        self.private -= 1
        self.pins[block] += 1
        tier = self.tier_of(block)
        if tier is not None and tier != HBM:
            self.resident[tier].remove(block)
            self.policies[tier].remove(block)
        self._use(block)

    def release(self, chain: list[int]) -> None:
        for block in reversed(chain):
            self.pins[block] -= 1
            if self.pins[block] == 0:
                self.policies[HBM].release(block)
