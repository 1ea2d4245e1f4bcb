"""Plain Python models of the policies that rank all blocks at each eviction: by time, by chain, by the future."""

from __future__ import annotations

from collections.abc import Sequence

from eviction_queue_models import Pins, PolicyModel

Chains = Sequence[tuple[float, Sequence[int]]]
"""Requests in order: when each arrives, and the blocks it looks up."""
NEVER = float("inf")


class RankedModel(PolicyModel):
    """Blocks by the order of their last use; `victim` sorts all that may go by `rank`, the lowest first.

    It parks what it would have to pass: the blocks in use that rank before the victim.
    """

    def __init__(self, capacity: int) -> None:
        self.blocks: list[int] = []  # those not parked, used longest ago first
        self.last_s: dict[int, float] = {}
        self.resident: set[int] = set()

    def rank(self, block: int) -> float | tuple[float, ...]:
        raise NotImplementedError

    def renew(self, block: int) -> None:
        if block in self.blocks:
            self.blocks.remove(block)
        self.blocks.append(block)
        self.last_s[block] = self.now_s

    def insert(self, block: int) -> None:
        self.resident.add(block)
        self.renew(block)

    def touch(self, block: int) -> None:
        if block in self.blocks:
            self.renew(block)

    def release(self, block: int) -> None:
        self.renew(block)

    def remove(self, block: int) -> None:
        self.resident.remove(block)
        if block in self.blocks:
            self.blocks.remove(block)

    def victim(self, pins: Pins) -> int:
        for block in sorted(self.blocks, key=self.rank):  # stable: among equals the one used longest ago
            self.blocks.remove(block)
            if not pins.get(block):
                self.resident.remove(block)
                return block
        return -1


class PredictedReuseModel(RankedModel):
    def rank(self, block: int) -> float:
        return -(self.now_s - self.last_s[block] + 60.0)


class LeafAwareLruModel(RankedModel):
    def __init__(self, capacity: int, chains: Chains) -> None:
        super().__init__(capacity)
        self.parent: dict[int, int] = {}
        for _, chain in chains:
            for before, block in zip([-1, *chain], chain, strict=False):
                self.parent.setdefault(block, before)

    def victim(self, pins: Pins) -> int:
        followed = {self.parent[block] for block in self.resident if block in self.parent}
        for block in list(self.blocks):
            if pins.get(block):  # which block is parked makes no difference: its release puts it last
                self.blocks.remove(block)
        ends = [block for block in self.blocks if block not in followed]
        for block in ends or self.blocks:
            self.remove(block)
            return block
        return -1


class BeladyModel(RankedModel):
    """awaited: times of use by block, without those that have been taken up."""

    patience_s = 30.0

    def __init__(self, capacity: int, chains: Chains) -> None:
        super().__init__(capacity)
        self.awaited: dict[int, list[float]] = {}
        for time_s, chain in chains:
            for block in chain:
                self.awaited.setdefault(block, []).append(time_s)

    def _next_s(self, block: int) -> float:
        uses = self.awaited.setdefault(block, [])
        while uses and uses[0] < self.now_s - self.patience_s:
            uses.pop(0)
        return uses[0] if uses else NEVER

    def rank(self, block: int) -> float:
        return -self._next_s(block)

    def _take_up(self, block: int) -> None:
        if self._next_s(block) <= self.now_s:
            self.awaited[block].pop(0)

    def insert(self, block: int) -> None:
        self._take_up(block)
        super().insert(block)

    def touch(self, block: int) -> None:
        self._take_up(block)
        super().touch(block)


class EwmaModel(RankedModel):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.mean_s: dict[int, float] = {}

    def rank(self, block: int) -> tuple[float, ...]:
        due_s = self.last_s[block] + self.mean_s.get(block, 60.0)
        if due_s >= self.now_s:
            return -due_s, 1
        return -(self.now_s + 1.0 * (self.now_s - due_s)), 0, due_s

    def _learn(self, block: int) -> None:
        if block in self.last_s:
            gap_s = self.now_s - self.last_s[block]
            self.mean_s[block] = 0.3 * gap_s + 0.7 * self.mean_s[block] if block in self.mean_s else gap_s
        self.last_s[block] = self.now_s

    def insert(self, block: int) -> None:
        self._learn(block)
        super().insert(block)

    def touch(self, block: int) -> None:
        self._learn(block)
        super().touch(block)


class LmcacheCostAwareModel(RankedModel):
    def __init__(self, capacity: int, chains: Chains) -> None:
        super().__init__(capacity)
        self.chains = chains
        self.cost: dict[int, int] = {}

    def rank(self, block: int) -> float:
        return self.cost[block] / (1 + (self.now_s - self.last_s[block]) / 60.0)

    def insert(self, block: int) -> None:
        tails = [(s, len(chain) - i) for s, chain in self.chains for i, b in enumerate(chain) if b == block]
        due = [tail for s, tail in tails if s <= self.now_s]
        self.cost[block] = due[-1] if due else tails[0][1]
        super().insert(block)
