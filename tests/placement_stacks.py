"""Stacks built from conf/, and what is in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.eviction.base import EvictionPolicy
from pipeline.eviction.facts import BlockFacts
from pipeline.placement import checks
from pipeline.placement.base import CAUSES, Placement
from pipeline.placement.state import make_stack
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


def residents(tiers: Any) -> list[set[int]]:
    return [set(np.flatnonzero(checks.residents(tiers, tier)).tolist()) for tier in range(len(TIERS))]


def used_blocks(tiers: Any) -> list[int]:
    return [int(tier.used_blocks) for tier in tiers.tiers]


def moved(stack: Any) -> dict[tuple[int, int, str], int]:
    found = np.argwhere(stack.moved_blocks)
    return {(int(s), int(t), CAUSES[c]): int(stack.moved_blocks[s, t, c]) for s, t, c in found}
