"""Stacks built from conf/, and what is in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.eviction.base import EvictionPolicy
from pipeline.eviction.facts import BlockFacts
from pipeline.placement.base import CAUSES, Placement
from pipeline.placement.stack import make_stack, where
from pipeline.spec import build
from pipeline.values import TIERS

CONF = Path(__file__).resolve().parents[1] / "conf"
BLOCKS = 24


@cache
def option(group: str, name: str, kind: Any) -> Any:
    return build(yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), group, kind)


def new_stack(
    capacity: list[int],
    policy: str = "lru",
    placement: str = "tiered",
    blocks: int = BLOCKS,
    facts: BlockFacts | None = None,
) -> Any:
    eviction = option("eviction", policy, EvictionPolicy)
    return make_stack(blocks, np.array(capacity), eviction, option("placement", placement, Placement), facts)


def residents(stack: Any) -> list[set[int]]:
    tiers_of = where(stack).copy()
    return [set(np.flatnonzero(tiers_of & (1 << tier)).tolist()) for tier in range(len(TIERS))]


def moved(stack: Any) -> dict[tuple[int, int, str], int]:
    found = np.argwhere(stack.moved_blocks)
    return {(int(s), int(t), CAUSES[c]): int(stack.moved_blocks[s, t, c]) for s, t, c in found}
