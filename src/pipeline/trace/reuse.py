"""Prefix reuse: its bounds, and what LRU hits of it by cache size."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.trace.request_trace import Floats, Ints, RequestTrace

ZERO_REUSE_HIT_RATIO = 0.0


def infinite_cache_hit_tokens(trace: RequestTrace) -> Ints:
    """Prompt tokens (n,) that each request finds if nothing is ever evicted and requests come one after another.

    A hit is the leading run of full prompt blocks that an earlier request listed. The last prompt token is always
    computed, so a prompt that ends with its last full block does not hit that one (as in vLLM).
    """
    request, position = trace.block_places()
    usable = np.minimum(np.diff(trace.block_offset), (trace.input_tokens - 1) // trace.block_tokens)
    _, first, number = np.unique(trace.block_ids, return_index=True, return_inverse=True)
    misses = np.flatnonzero((request[first][number] == request) | (position >= usable[request]))
    missing, at = np.unique(request[misses], return_index=True)
    hit_blocks = usable.copy()
    hit_blocks[missing] = np.minimum(usable[missing], position[misses[at]])
    return hit_blocks * trace.block_tokens


def infinite_cache_hit_ratio(trace: RequestTrace) -> float:
    """Share of all prompt tokens that infinite_cache_hit_tokens finds: the upper bound of any cache's hits."""
    return float(infinite_cache_hit_tokens(trace).sum() / trace.input_tokens.sum())


def reuse_distances(trace: RequestTrace) -> Ints:
    """How many other blocks were looked up since the last look-up of the same block, -1 for the first, (m,).

    Requests come in order of arrival, and each full block of a prompt is one look-up. An LRU cache of more blocks than
    the distance holds the block (Mattson et al., IBM Systems Journal 9, 1970).
    """
    request, position = trace.block_places()
    is_prompt = position < (trace.input_tokens // trace.block_tokens)[request]
    return _stack_distances(trace.block_ids[is_prompt], trace.block_count)


def hit_ratio_curve(distances: Ints, capacity_blocks: Ints) -> Floats:
    """Share of look-ups that an LRU cache of each capacity (k,) hits, (k,); 0 where nothing is looked up."""
    known = np.sort(distances[distances >= 0])
    return np.searchsorted(known, capacity_blocks, side="left") / max(distances.size, 1)


@njit(cache=True)
def _stack_distances(blocks: Ints, block_count: int) -> Ints:
    """A tree of counts (Fenwick 1994) over look-ups marks the last one of each block."""
    distances = np.empty(blocks.size, np.int64)
    last = np.full(block_count, -1, np.int64)
    marks = np.zeros(blocks.size + 1, np.int64)
    seen = 0
    for i in range(blocks.size):
        before = last[blocks[i]]
        if before < 0:
            distances[i] = -1
            seen += 1
        else:
            older, k = 0, before + 1
            while k > 0:
                older += marks[k]
                k -= k & -k
            distances[i] = seen - older
            k = before + 1
            while k < marks.size:
                marks[k] -= 1
                k += k & -k
        k = i + 1
        while k < marks.size:
            marks[k] += 1
            k += k & -k
        last[blocks[i]] = i
    return distances
