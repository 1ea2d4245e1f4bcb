"""A plain Python model of the tier stack: slow, written from the rules of `Placement`, sharing no code with it.

Transfers take no time in it: what is copied is there at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from eviction_models import make_model
from eviction_score_models import Chains

HBM = 0
TIERS = range(4)
LOWER = range(1, 4)


class TierModel:
    """What lies in a tier, and a policy that orders it; several stacks may use one."""

    def __init__(self, capacity: int, policy: str, chains: Chains, rules: Any = None) -> None:
        self.capacity = capacity
        self.blocks: set[int] = set()
        self.policy = make_model(policy, capacity, chains)
        # Ratios are such that no rounding matters.
        self.full_at = capacity if rules is None else max(int(rules.evict_at_ratio * capacity), 1)
        self.evicts = 1 if rules is None else max(int(rules.evict_ratio * capacity), 1)

    def enter(self, block: int) -> None:
        assert block not in self.blocks
        self.blocks.add(block)
        self.policy.insert(block)

    def use(self, block: int) -> None:
        if block in self.blocks:
            self.policy.touch(block)

    def forget(self, block: int) -> None:
        if block in self.blocks:
            self.blocks.remove(block)
            self.policy.remove(block)


class StackModel:
    """Tiers of sets, users by block, and what was counted."""

    def __init__(
        self, capacity: list[int], policy: str, rules: Any, chains: Chains, shared: dict[int, TierModel]
    ) -> None:
        self.rules = rules
        lower = [shared.get(t) or TierModel(capacity[t], policy, chains, rules) for t in LOWER]
        self.tiers = [TierModel(capacity[HBM], policy, chains), *lower]
        self.kept = [t for t in LOWER if self.tiers[t].capacity > 0] if rules.write_policy != "none" else []
        self.pins: Counter[int] = Counter()
        self.private = 0
        self.listed: list[int] = []
        self.coming: set[int] = set()
        self.uses: Counter[int] = Counter()
        self.entries: Counter[int] = Counter()
        self.moves: Counter[tuple[int, int, str]] = Counter()
        self.hits: Counter[int] = Counter()
        self.evicted: Counter[int] = Counter()
        self.dropped: Counter[int] = Counter()

    def set_time(self, now_s: float) -> None:
        for tier in self.tiers:
            tier.policy.now_s = now_s

    @property
    def hbm(self) -> set[int]:
        return self.tiers[HBM].blocks

    @property
    def resident(self) -> list[set[int]]:
        return [tier.blocks for tier in self.tiers]

    @property
    def pinned(self) -> set[int]:
        return {block for block, users in self.pins.items() if users > 0}

    @property
    def used(self) -> list[int]:
        return [len(tier.blocks) + (self.private if t == HBM else 0) for t, tier in enumerate(self.tiers)]

    @property
    def is_inclusive(self) -> bool:
        return bool(self.rules.inclusion == "inclusive")

    def tier_of(self, block: int) -> int | None:
        return next((t for t in TIERS if block in self.tiers[t].blocks), None)

    def copies(self, block: int) -> list[TierModel]:
        return [self.tiers[t] for t in LOWER if block in self.tiers[t].blocks]

    def match(self, chain: list[int]) -> int:
        return next((i for i, block in enumerate(chain) if self.tier_of(block) is None), len(chain))

    def fits(self, more_in_use: int) -> bool:
        return len(self.pinned) + self.private + more_in_use <= self.tiers[HBM].capacity

    # Down.

    def make_room(self, blocks: int) -> None:
        while self.used[HBM] + blocks > self.tiers[HBM].capacity:
            block = self.evict(HBM, self.pins)
            assert block is not None
            if self.rules.spares_hbm:
                for tier in self.copies(block):
                    tier.policy.release(block)
            if self.rules.write_policy == "write_back" and self.kept and not self.copies(block):
                self.put(block, HBM, self.kept[0], "demote")

    def evict(self, t: int, in_use: dict[int, int]) -> int | None:
        block = self.tiers[t].policy.victim(in_use)
        if block < 0:
            return None
        self.tiers[t].blocks.remove(block)
        self.evicted[t] += 1
        return block

    def below(self, t: int) -> int | None:
        return next((lower for lower in self.kept if lower > t), None)

    def put(self, block: int, source: int, t: int, cause: str | None) -> None:
        """Copy a block into a tier below HBM; without a cause it comes by anyway."""
        tier, below = self.tiers[t], self.below(t)
        spared = dict.fromkeys(self.hbm | self.coming, 1) if self.rules.spares_hbm else {}
        for _ in range(tier.evicts if len(tier.blocks) >= tier.full_at else 0):
            victim = self.evict(t, spared)
            if victim is None:
                break
            if self.rules.lower_write_policy == "write_back" and below is not None and not self.copies(victim):
                self.put(victim, t, below, "demote")
        if len(tier.blocks) >= tier.capacity:
            self.dropped[t] += 1
            return
        tier.enter(block)
        if cause:
            self.moves[source, t, cause] += 1
        if below is not None and self.copies_on(block, t) and block not in self.tiers[below].blocks:
            self.put(block, t, below, "offload")

    def copies_on(self, block: int, t: int) -> bool:
        if self.rules.lower_write_policy != "write_through_selective" or t != self.kept[0]:
            return str(self.rules.lower_write_policy).startswith("write_through")
        self.entries[block] += 1
        return bool(self.entries[block] >= self.rules.lower_write_threshold)

    def note_use(self, block: int, may_write: bool) -> None:
        if not self.rules.write_policy.startswith("write_through"):
            return
        self.uses[block] += 1
        if self.rules.write_threshold is not None and self.uses[block] < self.rules.write_threshold:
            return
        if may_write and self.kept and block not in self.listed and not self.copies(block):
            self.listed.insert(0 if self.rules.lower_order == "leaf_first" else len(self.listed), block)

    def write_listed(self) -> None:
        listed, self.listed = self.listed, []
        for block in listed:
            if block in self.hbm and not self.copies(block):
                self.put(block, HBM, self.kept[0], "offload")

    # Up, and in HBM.

    def acquire(self, chain: list[int]) -> tuple[bool, int, int, int, int]:
        if not self.fits(len(set(chain) - self.pinned)):
            return False, 0, 0, 0, 0
        for block in chain:
            self.pins[block] += 1
        found = {block: t for block in chain if (t := self.tier_of(block)) not in (HBM, None)}
        self.touch_below(chain)
        self.coming = set(found)
        for block, t in found.items():
            self.moves[t, HBM, "onboard"] += 1
            if not self.is_inclusive:
                for tier in self.copies(block):
                    tier.forget(block)
        if self.rules.keeps_on_the_way:
            for block, t in found.items():
                for passed in self.kept:
                    if passed < t and block not in self.tiers[passed].blocks:
                        self.put(block, t, passed, None)
        self.make_room(len(found))
        for block in chain:
            self._use(block)
            if self.rules.hits_count_below or self.rules.write_policy == "write_through_selective":
                self.note_use(block, True)
        self.coming = set()
        lower = Counter(found.values())
        in_hbm = len(chain) - len(found)
        self.hits += lower + Counter({HBM: in_hbm})
        return True, in_hbm, lower[1], lower[2], lower[3]

    def touch_below(self, chain: list[int]) -> None:
        if self.is_inclusive:
            for block in chain if self.rules.lower_order == "root_first" else reversed(chain):
                if block not in self.hbm or self.rules.hits_count_below:
                    for tier in self.copies(block):
                        tier.use(block)

    def _use(self, block: int) -> None:
        if block in self.hbm:
            self.tiers[HBM].use(block)
        else:
            self.tiers[HBM].enter(block)

    def reserve(self, blocks: int) -> bool:
        if not self.fits(blocks):
            return False
        self.make_room(blocks)
        self.private += blocks
        return True

    def commit(self, block: int, is_output: bool) -> None:
        self.private -= 1
        self.pins[block] += 1
        for tier in self.copies(block):
            if self.is_inclusive:
                tier.use(block)
            else:
                tier.forget(block)
        self._use(block)
        self.note_use(block, self.rules.writes_output or not is_output)

    def release(self, chain: list[int]) -> None:
        for block in reversed(chain):
            if self.is_inclusive and self.rules.lower_order == "leaf_first":
                for tier in self.copies(block):
                    tier.use(block)
            self.pins[block] -= 1
            if self.pins[block] == 0:
                self.tiers[HBM].policy.release(block)
