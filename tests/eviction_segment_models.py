"""Plain Python models of SLRU, ARC and random eviction."""

from __future__ import annotations

from eviction_queue_models import Pins, PolicyModel


class SlruModel(PolicyModel):
    """Segments, lowest first, each a list, oldest first; `home` says to which a resident block belongs."""

    def __init__(self, capacity: int, segments: int = 2) -> None:
        self.limit = capacity // segments
        self.lists: list[list[int]] = [[] for _ in range(segments)]
        self.home: dict[int, int] = {}

    def _count(self, segment: int) -> int:
        return list(self.home.values()).count(segment)

    def insert(self, block: int) -> None:
        roomy = [s for s in range(len(self.lists)) if self._count(s) < self.limit]
        self.home[block] = roomy[0] if roomy else 0
        self.lists[self.home[block]].append(block)

    def touch(self, block: int) -> None:
        was = self.home[block]
        self.home[block] = min(was + 1, len(self.lists) - 1)
        if block in self.lists[was]:
            self.lists[was].remove(block)
            self.lists[self.home[block]].append(block)
        for segment in range(self.home[block], 0, -1):
            while self._count(segment) > self.limit and self.lists[segment]:
                sinking = self.lists[segment].pop(0)
                self.home[sinking] = segment - 1
                self.lists[segment - 1].append(sinking)

    def release(self, block: int) -> None:
        own = self.lists[self.home[block]]
        if block in own:
            own.remove(block)
        own.append(block)

    def remove(self, block: int) -> None:
        own = self.lists[self.home.pop(block)]
        if block in own:
            own.remove(block)

    def victim(self, pins: Pins) -> int:
        for own in self.lists:
            while own:
                block = own.pop(0)
                if not pins.get(block):
                    del self.home[block]
                    return block
        return -1


class ArcModel(PolicyModel):
    """Lists of blocks used once and again, and of their ghosts, oldest first; `home`: the list of a resident block."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.lists: dict[str, list[int]] = {"once": [], "again": []}
        self.ghosts: dict[str, list[int]] = {"once": [], "again": []}
        self.home: dict[int, str] = {}
        self.target = 0.0

    def _count(self, name: str) -> int:
        return list(self.home.values()).count(name)

    def insert(self, block: int) -> None:
        once, again = len(self.ghosts["once"]), len(self.ghosts["again"])
        if block in self.ghosts["once"]:
            self.target = min(self.target + max(again / once, 1), self.capacity)
        elif block in self.ghosts["again"]:
            self.target = max(self.target - max(once / again, 1), 0)
        else:
            self._enter("once", block)
            if self._count("once") + once > self.capacity:
                del self.ghosts["once"][:1]
            elif len(self.home) + once + again > 2 * self.capacity:
                del self.ghosts["again"][:1]
            return
        self.ghosts = {name: [b for b in ghosts if b != block] for name, ghosts in self.ghosts.items()}
        self._enter("again", block)

    def _enter(self, name: str, block: int) -> None:
        self.home[block] = name
        self.lists[name].append(block)

    def touch(self, block: int) -> None:
        own = self.lists[self.home[block]]
        self.home[block] = "again"
        if block in own:
            own.remove(block)
            self.lists["again"].append(block)

    def release(self, block: int) -> None:
        own = self.lists[self.home[block]]
        if block in own:
            own.remove(block)
        own.append(block)

    def remove(self, block: int) -> None:
        own = self.lists[self.home.pop(block)]
        if block in own:
            own.remove(block)

    def victim(self, pins: Pins) -> int:
        names = ["once", "again"] if self._count("once") > self.target else ["again", "once"]
        for name in names:
            while self.lists[name]:
                block = self.lists[name].pop(0)
                if not pins.get(block):
                    self.ghosts[self.home.pop(block)].append(block)
                    return block
        return -1


class RandomModel(PolicyModel):
    """A list; draw n of SplitMix64 with seed 1 says which place is next, and the last block fills the gap."""

    def __init__(self, capacity: int) -> None:
        self.blocks: list[int] = []
        self.draws = 0

    def _draw(self) -> int:
        self.draws += 1
        word = (1 + self.draws * 0x9E3779B97F4A7C15) % 2**64
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
        return ((word ^ (word >> 31)) >> 32) * len(self.blocks) >> 32

    def insert(self, block: int) -> None:
        self.blocks.append(block)

    def touch(self, block: int) -> None:
        pass

    def release(self, block: int) -> None:
        if block not in self.blocks:
            self.blocks.append(block)

    def remove(self, block: int) -> None:
        if block in self.blocks:
            self._take(self.blocks.index(block))

    def _take(self, place: int) -> int:
        block = self.blocks[place]
        self.blocks[place] = self.blocks[-1]
        self.blocks.pop()
        return block

    def victim(self, pins: Pins) -> int:
        while self.blocks:
            block = self._take(self._draw())
            if not pins.get(block):
                return block
        return -1
