"""Exact miss counts of a policy on a plain sequence of accesses, outside any simulation."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState
from pipeline.eviction.calls import insert, touch, victim
from pipeline.eviction.facts import make_facts
from pipeline.spec import InputError


def misses(
    policy: EvictionPolicy,
    block_ids: NDArray[np.int64],
    block_count: int,
    capacity_blocks: int,
    offset: NDArray[np.int64] | None = None,
) -> int:
    """Count the misses of unit-size accesses in order, inserted on a miss, from an empty cache.

    block_ids: (n,) in 0..block_count-1. capacity_blocks: at least 1. Raises InputError for anything else. The time of
    an access is its position. offset: where chains begin, and n, for a policy that asks; None: all are one chain each.
    """
    if capacity_blocks < 1:
        raise InputError(f"capacity_blocks: given {capacity_blocks}, expected at least 1")
    if block_ids.size and not 0 <= block_ids.min() <= block_ids.max() < block_count:
        given = f"{block_ids.min()}..{block_ids.max()}"
        raise InputError(f"block_ids: given {given}, expected 0..{block_count - 1}")
    resident = np.zeros(block_count, np.bool_)
    pins = np.zeros(block_count, np.int32)
    facts = None
    if policy.needs_facts:
        chains = np.arange(block_ids.size + 1) if offset is None else offset
        facts = make_facts(block_ids, chains, np.arange(block_ids.size, dtype=np.float64), block_count)
    state = policy.state(block_count, capacity_blocks, facts)
    return int(_misses(state, policy.functions(), pins, resident, block_ids, capacity_blocks))


@njit(cache=True)
def _misses(
    a: PolicyState,
    functions: PolicyFunctions,
    pins: NDArray[np.int32],
    resident: NDArray[np.bool_],
    block_ids: NDArray[np.int64],
    capacity_blocks: int,
) -> int:
    used_blocks = 0
    missed = 0
    for i in range(block_ids.size):
        block = block_ids[i]
        if resident[block]:
            touch(functions, a, block, float(i))
            continue
        missed += 1
        if used_blocks == capacity_blocks:
            resident[victim(functions, a, pins, float(i))] = False
        else:
            used_blocks += 1
        insert(functions, a, block, float(i))
        resident[block] = True
    return missed
