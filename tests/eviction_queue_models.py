"""Plain Python models of eviction policies that keep queues."""

from __future__ import annotations

Pins = dict[int, int]


class PolicyModel:
    """What all models do; whoever drives one sets now_s before each operation."""

    now_s = 0.0

    def insert(self, block: int) -> None:
        raise NotImplementedError

    def touch(self, block: int) -> None:
        raise NotImplementedError

    def release(self, block: int) -> None:
        raise NotImplementedError

    def remove(self, block: int) -> None:
        raise NotImplementedError

    def victim(self, pins: Pins) -> int:
        raise NotImplementedError


class QueueModel(PolicyModel):
    """A list, oldest first; in-use blocks that `victim` meets are parked outside it."""

    moves_on_use = False

    def __init__(self, capacity: int) -> None:
        self.queue: list[int] = []

    def insert(self, block: int) -> None:
        self.queue.append(block)

    def touch(self, block: int) -> None:
        if self.moves_on_use and block in self.queue:
            self.queue.remove(block)
            self.queue.append(block)

    def release(self, block: int) -> None:
        if self.moves_on_use:
            self.remove(block)
            self.queue.append(block)
        elif block not in self.queue:
            self.queue.insert(0, block)

    def remove(self, block: int) -> None:
        if block in self.queue:
            self.queue.remove(block)

    def victim(self, pins: Pins) -> int:
        while self.queue:
            block = self.queue.pop(0)
            if not pins.get(block):
                return block
        return -1


class LruModel(QueueModel):
    moves_on_use = True


class FifoModel(QueueModel):
    pass


class LfuModel(PolicyModel):
    """uses by block, and the order in which blocks of equal use would go."""

    def __init__(self, capacity: int) -> None:
        self.uses: dict[int, int] = {}
        self.order: dict[int, list[int]] = {}

    def _parked(self, block: int) -> bool:
        return block not in self.order.get(self.uses[block], [])

    def insert(self, block: int) -> None:
        self.uses[block] = 1
        self.order.setdefault(1, []).append(block)

    def touch(self, block: int) -> None:
        parked = self._parked(block)
        if not parked:
            self.order[self.uses[block]].remove(block)
        self.uses[block] += 1
        if not parked:
            self.order.setdefault(self.uses[block], []).append(block)

    def release(self, block: int) -> None:
        if self._parked(block):
            self.order.setdefault(self.uses[block], []).insert(0, block)

    def remove(self, block: int) -> None:
        if not self._parked(block):
            self.order[self.uses[block]].remove(block)
        del self.uses[block]

    def victim(self, pins: Pins) -> int:
        for uses in sorted(self.order):
            while self.order[uses]:
                block = self.order[uses].pop(0)
                if not pins.get(block):
                    del self.uses[block]
                    return block
        return -1


class SieveModel(PolicyModel):
    """A list, oldest first, and a hand: a position in it."""

    def __init__(self, capacity: int) -> None:
        self.queue: list[int] = []
        self.visited: set[int] = set()
        self.hand = 0

    def insert(self, block: int) -> None:
        if self.hand >= len(self.queue):  # at the end: it goes on from the oldest, not from the new block
            self.hand = 0
        self.queue.append(block)
        self.visited.discard(block)

    def touch(self, block: int) -> None:
        self.visited.add(block)

    def release(self, block: int) -> None:
        if block not in self.queue:
            if self.hand >= len(self.queue):
                self.hand = 0
            self.queue.insert(self.hand, block)

    def remove(self, block: int) -> None:
        if block in self.queue:
            at = self.queue.index(block)
            self.queue.pop(at)
            if at < self.hand:
                self.hand -= 1

    def victim(self, pins: Pins) -> int:
        while self.queue:
            if self.hand >= len(self.queue):
                self.hand = 0
            block = self.queue[self.hand]
            if block in self.visited:
                self.visited.discard(block)
                self.hand += 1
                continue
            self.queue.pop(self.hand)
            if not pins.get(block):
                return block
        return -1


class S3FifoModel(PolicyModel):
    """Small, main and ghost lists, oldest first; `home` says to which of small and main a resident block belongs."""

    def __init__(self, capacity: int) -> None:
        self.small_limit = max(int(capacity * 0.1), 1)
        self.ghost_limit = int(capacity * 0.9)
        self.queues: dict[str, list[int]] = {"small": [], "main": []}
        self.ghosts: list[int] = []
        self.home: dict[int, str] = {}
        self.uses: dict[int, int] = {}
        self.evicted = False

    def _count(self, queue: str) -> int:
        return sum(home == queue for home in self.home.values())

    def _enter(self, queue: str, block: int, uses: int = 0) -> None:
        self.queues[queue].append(block)
        self.home[block] = queue
        self.uses[block] = uses

    def insert(self, block: int) -> None:
        if block in self.ghosts:
            self.ghosts.remove(block)
            self._enter("main", block)
        elif not self.evicted and self._count("small") >= self.small_limit:
            self._enter("main", block)
        else:
            self._enter("small", block)

    def touch(self, block: int) -> None:
        self.uses[block] += 1

    def release(self, block: int) -> None:
        queue = self.queues[self.home[block]]
        if block not in queue:
            queue.insert(0, block)

    def remove(self, block: int) -> None:
        queue = self.queues[self.home.pop(block)]
        if block in queue:
            queue.remove(block)

    def victim(self, pins: Pins) -> int:
        self.evicted = True
        while len(self.ghosts) > self.ghost_limit:
            self.ghosts.pop(0)
        small, main = self.queues["small"], self.queues["main"]
        while small or main:
            over = self._count("main") > len(self.home) - int(len(self.home) * 0.1)
            from_main = not small or (over and bool(main))
            block = self._from_main(pins) if from_main else self._from_small(pins)
            if block >= 0:
                return block
        return -1

    def _from_small(self, pins: Pins) -> int:
        small = self.queues["small"]
        while small:
            block = small.pop(0)
            if self.uses[block] >= 2:
                self._enter("main", block)
            elif not pins.get(block):
                del self.home[block]
                self.ghosts.append(block)
                return block
        return -1

    def _from_main(self, pins: Pins) -> int:
        main = self.queues["main"]
        while main:
            block = main.pop(0)
            if self.uses[block] > 0:
                self._enter("main", block, min(self.uses[block], 3) - 1)
            elif not pins.get(block):
                del self.home[block]
                return block
        return -1
