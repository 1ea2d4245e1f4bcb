"""Exact miss counts of a tier stack on the chains of a trace, one request at a time, outside any simulation."""

from __future__ import annotations

from numba import njit

from pipeline.placement.base import ONBOARD
from pipeline.placement.lower import write_listed
from pipeline.placement.stack import acquire, commit, match, record_misses, release, reserve
from pipeline.placement.state import Ints, Stack, StackTiers


@njit(cache=True)
def misses(stack: Stack, tiers: StackTiers, block_ids: Ints, offset: Ints, leaf_first: bool) -> int:
    """Count the blocks that no tier held with all before them; request i looks up block_ids[offset[i]:offset[i + 1]].

    Each request brings up what it finds, computes the rest, and lets go before the next one comes; the time is its
    number. leaf_first: whether it lets go of its last block first, as the engine does, or of its first. Returns -1 if
    HBM cannot hold a request.
    """
    missed = 0
    for request in range(offset.size - 1):
        start, stop, time_s = offset[request], offset[request + 1], float(request)
        run = match(stack, tiers, block_ids, start, stop, time_s)
        absent = stop - start - run
        if not (
            acquire(stack, tiers, block_ids, start, run, ONBOARD, time_s)[0] and reserve(stack, tiers, absent, time_s)
        ):
            return -1
        record_misses(stack, absent)
        missed += absent
        for i in range(start + run, stop):
            commit(stack, tiers, block_ids[i], False, time_s)
        write_listed(stack, tiers, time_s)
        if leaf_first:
            release(stack, tiers, block_ids, start, stop, time_s)
        else:
            for i in range(start, stop):
                release(stack, tiers, block_ids, i, i + 1, time_s)
    return missed
