"""Policies built from conf/, chains to run them on, and what they may know of these."""

from __future__ import annotations

import random
from functools import cache
from itertools import chain as joined
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from eviction_models import MODELS
from eviction_score_models import Chains

from pipeline.eviction.base import EvictionPolicy
from pipeline.eviction.facts import BlockFacts, make_facts
from pipeline.eviction.replay import misses
from pipeline.spec import build

CONF = Path(__file__).resolve().parents[1] / "conf" / "eviction"
NAMES = sorted(MODELS)


@cache
def policy(name: str, **changes: Any) -> EvictionPolicy:
    return build(yaml.safe_load((CONF / f"{name}.yaml").read_text()) | changes, "eviction", EvictionPolicy)


def count_misses(name: str, accesses: list[int], capacity: int, **changes: Any) -> int:
    """Every access is a chain of its own."""
    return misses(policy(name, **changes), np.array(accesses, np.int64), max(accesses) + 1, capacity)


def count_chain_misses(name: str, chains: list[list[int]], capacity: int, **changes: Any) -> int:
    accesses, offset = np.array(list(joined(*chains)), np.int64), np.cumsum([0, *map(len, chains)])
    return misses(policy(name, **changes), accesses, int(accesses.max()) + 1, capacity, offset)


def facts_of(chains: Chains, blocks: int) -> BlockFacts:
    ids = np.array([block for _, chain in chains for block in chain], np.int64)
    length = [len(chain) for _, chain in chains]
    time_s = np.repeat(np.array([time_s for time_s, _ in chains]), length)
    return make_facts(ids, np.cumsum([0, *length]), time_s, blocks)


def some_chains(draw: random.Random, blocks: int) -> Chains:
    """Requests over 300 s, each along a branch of a binary tree; every block is looked up at least once."""
    leaves = [*range(blocks), *(draw.randrange(blocks) for _ in range(60))]
    chains = []
    for leaf in leaves:
        chain = [leaf]
        while chain[0] > 0:
            chain.insert(0, (chain[0] - 1) // 2)
        chains.append((float(draw.randrange(300)), chain))
    return sorted(chains)
