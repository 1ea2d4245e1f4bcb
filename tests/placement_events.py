"""What happens in a tier stack, one request at a time, in order: a recorder between the stack and its policies."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
from placement_stacks import moved, new_stack

from pipeline.eviction.base import PolicyFunctions
from pipeline.placement.base import ONBOARD
from pipeline.placement.checks import check_invariants
from pipeline.placement.lower import write_listed
from pipeline.placement.stack import acquire, commit, match, record_misses, release, reserve
from pipeline.placement.state import DRAM, HBM, SSD

STATE, BLOCK, TIME = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
ON_BLOCK = ctypes.CFUNCTYPE(None, STATE, BLOCK, TIME)
ON_REMOVE = ctypes.CFUNCTYPE(None, STATE, BLOCK)
ON_VICTIM = ctypes.CFUNCTYPE(BLOCK, STATE, ctypes.c_void_p, TIME)
LETTERS = "hdsr"
SHORT = {"offload": str.lower, "onboard": str.lower, "demote": str.upper}
"""How a move of each cause is written: `hd A` is an offload of A from HBM to DRAM, `HD A` a demotion."""


def name(blocks: list[int]) -> str:
    return "".join(chr(ord("A") + block) for block in blocks)


class Recorder:
    """A stack whose policies tell what they are told; blocks 0, 1, 2 are named A, B, C.

    order: the blocks of each tier, those first of which the policy has not heard for longest.
    """

    def __init__(self, placement: str, capacity: list[int], policy: str = "lru", **changes: Any) -> None:
        self.stack, tiers = new_stack([*capacity, 0], policy, placement, **changes)
        self.tier_of = {int(state["address"]): tier for tier, state in enumerate(tiers.states)}
        self.order: list[list[int]] = [[] for _ in tiers.states]
        self.coming: dict[int, int] = {}
        self.evicted: list[int] = []
        self.events: list[tuple[str, int]] = []
        real = tiers.functions
        self.functions = [
            *(ON_BLOCK(self._on_block(what, getattr(real, what))) for what in ("insert", "touch", "release")),
            ON_REMOVE(self._on_remove(real.remove)),
            ON_VICTIM(self._on_victim(real.victim)),
        ]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self.functions]
        self.tiers = tiers._replace(functions=PolicyFunctions(*addresses))
        self.time_s = 0.0

    def _on_block(self, what: str, address: int) -> Callable[[int, int, float], None]:
        real = ON_BLOCK(address)

        def call(state: int, block: int, time_s: float) -> None:
            tier = self.tier_of[state]
            if what == "insert":
                self._entered(tier, block)
            else:
                self.order[tier].remove(block)
            self.order[tier].append(block)
            real(state, block, time_s)

        return call

    def _entered(self, tier: int, block: int) -> None:
        if tier == HBM:
            if block in self.coming:
                self.events.append((f"{LETTERS[self.coming[block]]}h", block))
        elif block in self.coming and block not in self.order[HBM]:
            self.events.append((f"+{LETTERS[tier]}", block))
        else:
            source = next(t for t in (DRAM, HBM) if t < tier and self.stack.below[t] == tier)
            cause = "offload" if block in self.order[source] else "demote"
            self.events.append((SHORT[cause](LETTERS[source] + LETTERS[tier]), block))

    def _on_remove(self, address: int) -> Callable[[int, int], None]:
        real = ON_REMOVE(address)

        def call(state: int, block: int) -> None:
            self.order[self.tier_of[state]].remove(block)
            real(state, block)

        return call

    def _on_victim(self, address: int) -> Callable[[int, int, float], int]:
        real = ON_VICTIM(address)

        def call(state: int, pins: int, time_s: float) -> int:
            block, tier = int(real(state, pins, time_s)), self.tier_of[state]
            if block >= 0:
                self.order[tier].remove(block)
                if tier == HBM:
                    self.evicted.append(block)
                else:
                    self.events.append((f"-{LETTERS[tier]}", block))
            return block

        return call

    def serve(self, chain: str) -> tuple[str, str, str, str]:
        """Run one request alone; return "hits in HBM/DRAM/SSD", evictions from HBM, events below it, DRAM's order.

        Events: `-d A` an eviction from DRAM; `+d A` a copy that stays there on the way up; moves see SHORT.
        """
        self.time_s += 100.0
        stack, tiers, now_s = self.stack, self.tiers, self.time_s
        ids = np.array([ord(letter) - ord("A") for letter in chain], np.int64)
        hits, moves = stack.hit_blocks.copy(), Counter(moved(stack))
        self.evicted, self.events = [], []
        run = match(stack, tiers, ids, 0, ids.size, now_s)
        found = {b: next(t for t, blocks in enumerate(self.order) if b in blocks) for b in ids[:run].tolist()}
        self.coming = {block: tier for block, tier in found.items() if tier != HBM}
        assert acquire(stack, tiers, ids, 0, run, ONBOARD, now_s)[0]
        self.coming = {}
        record_misses(stack, ids.size - run)
        assert reserve(stack, tiers, ids.size - run, now_s)
        for block in ids[run:].tolist():
            commit(stack, tiers, block, False, now_s)
        write_listed(stack, tiers, now_s)
        release(stack, tiers, ids, 0, ids.size, now_s)
        self._check(Counter(moved(stack)) - moves)
        told = "/".join(map(str, (stack.hit_blocks - hits)[: SSD + 1].tolist()))
        events = ", ".join(
            f"{what} {name([block for _, block in group])}" for what, group in groupby(self.events, lambda e: e[0])
        )
        return told, name(self.evicted), events, name(self.order[DRAM])

    def _check(self, moves: Counter[tuple[int, int, str]]) -> None:
        """What was recorded is what the stack has counted, and nothing is broken."""
        told = Counter(what for what, _ in self.events if what.isalpha())
        assert told == {SHORT[cause](LETTERS[s] + LETTERS[t]): count for (s, t, cause), count in moves.items()}
        assert check_invariants(self.stack, self.tiers) == []
