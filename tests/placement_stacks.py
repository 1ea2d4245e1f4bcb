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
from pipeline.placement.state import CLUSTER, NODE, SharedTier, make_shared_tier, make_stack
from pipeline.spec import build
from pipeline.values import TIERS

CONF = Path(__file__).resolve().parents[1] / "conf"
BLOCKS = 24


@cache
def option(group: str, name: str, kind: Any) -> Any:
    return build(yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), group, kind)


def placement_of(name: str = "tiered", **changes: Any) -> Placement:
    """An option of conf/placement/, with some rules changed."""
    return option("placement", name, Placement).model_validate(
        {**option("placement", name, Placement).model_dump(), **changes}
    )


def new_stack(
    capacity: list[int],
    policy: str = "lru",
    placement: str = "tiered",
    blocks: int = BLOCKS,
    facts: BlockFacts | None = None,
    shared: dict[int, SharedTier] | None = None,
    **changes: Any,
) -> Any:
    eviction = option("eviction", policy, EvictionPolicy)
    return make_stack(blocks, np.array(capacity), eviction, placement_of(placement, **changes), facts, shared)


def new_shared(
    capacity: dict[int, int], policy: str = "lru", facts: BlockFacts | None = None, **changes: Any
) -> dict[int, SharedTier]:
    """Empty tiers for several stacks: the remote one of the cluster, others of a node."""
    eviction, rules = option("eviction", policy, EvictionPolicy), placement_of(**changes)
    where = {scope: np.zeros(BLOCKS, np.uint8) for scope in (NODE, CLUSTER)}
    made = {}
    for tier, blocks in capacity.items():
        scope = CLUSTER if TIERS[tier] == "remote" else NODE
        made[tier] = make_shared_tier(tier, BLOCKS, blocks, eviction, rules, scope, where[scope], facts)
    return made


def residents(tiers: Any) -> list[set[int]]:
    return [set(np.flatnonzero(checks.residents(tiers, tier)).tolist()) for tier in range(len(TIERS))]


def used_blocks(tiers: Any) -> list[int]:
    return [int(tier.used_blocks) for tier in tiers.tiers]


def moved(stack: Any) -> dict[tuple[int, int, str], int]:
    found = np.argwhere(stack.moved_blocks)
    return {(int(s), int(t), CAUSES[c]): int(stack.moved_blocks[s, t, c]) for s, t, c in found}
