"""Bounds of prefix reuse: what a cache that forgets nothing would hit, and one that keeps nothing."""

from __future__ import annotations

import numpy as np

from pipeline.trace.request_trace import Ints, RequestTrace

ZERO_REUSE_HIT_RATIO = 0.0


def infinite_cache_hit_tokens(trace: RequestTrace) -> Ints:
    """Prompt tokens (n,) that each request finds if nothing is ever evicted and requests come one after another.

    A hit is the leading run of full prompt blocks that an earlier request listed. The last prompt token is always
    computed, so a prompt that ends with its last full block does not hit that one (as in vLLM).
    """
    lengths = np.diff(trace.block_offset)
    request = np.repeat(np.arange(trace.request_count), lengths)
    usable = np.minimum(lengths, (trace.input_tokens - 1) // trace.block_tokens)
    _, first, number = np.unique(trace.block_ids, return_index=True, return_inverse=True)
    position = np.arange(request.size) - trace.block_offset[request]
    misses = np.flatnonzero((request[first][number] == request) | (position >= usable[request]))
    missing, at = np.unique(request[misses], return_index=True)
    hit_blocks = usable.copy()
    hit_blocks[missing] = np.minimum(usable[missing], position[misses[at]])
    return hit_blocks * trace.block_tokens


def infinite_cache_hit_ratio(trace: RequestTrace) -> float:
    """Share of all prompt tokens that infinite_cache_hit_tokens finds: the upper bound of any cache's hits."""
    return float(infinite_cache_hit_tokens(trace).sum() / trace.input_tokens.sum())
