"""At which steps the operations are sampled: what an engine can schedule, within what its source can answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.model import Model
from pipeline.values import EngineLimits

Ints = NDArray[np.int64]
ALL_TOKENS_TO = 1024
TILE_TOKENS = 256
TOKEN_POINTS = 1500
SEQUENCE_POINTS = 600
PREFILL_POINTS = 5000
UNCACHED_POINTS = 800
DECODE_POINTS = 4500
FEWEST = 64  # tokens and sequences that are sampled even where an engine schedules fewer, so that there is a curve
FEWEST_KV_TOKENS = 4096


class Points(NamedTuple):
    """Steps to sample: tokens (t,), sequences (s,), chunks (p,) new and cached, decodes (d,) and mean context."""

    tokens: Ints
    sequences: Ints
    prefill_new: Ints
    prefill_cached: Ints
    decode_requests: Ints
    decode_context: Ints


def sample_points(model: Model, engine: EngineLimits, kv_tokens: int, most_tokens: int, most_context: int) -> Points:
    """Lay out the points; the same arguments give the same points.

    kv_tokens: KV capacity, which bounds requests x context. most_tokens, most_context: how many scheduled tokens and
    how long a prefill context the source can answer for.
    """
    tokens = min(max(engine.max_batched_tokens + engine.max_running, FEWEST), most_tokens)
    chunk = min(max(engine.max_batched_tokens, FEWEST), tokens, most_context)  # several prompts count as one chunk
    context = min(max(model.max_context_tokens, chunk), most_context)
    sequences = max(engine.max_running, FEWEST)
    counts = _counts(tokens, TOKEN_POINTS, 1), _counts(sequences, SEQUENCE_POINTS, 2)
    kv_tokens = max(kv_tokens, FEWEST_KV_TOKENS)
    decodes = _decode(engine.max_running, min(model.max_context_tokens, kv_tokens), kv_tokens)
    return Points(*counts, *_prefill(chunk, context), *decodes)


def _rng(component: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[0, component]))


def _counts(most: int, points: int, component: int) -> Ints:
    """Every count to ALL_TOKENS_TO, both sides of each tile of GEMM kernels, and random ones between."""
    tiles = np.arange(TILE_TOKENS, most, TILE_TOKENS)
    drawn = _rng(component).integers(1, most + 1, points)
    every = np.arange(1, min(most, ALL_TOKENS_TO) + 1)
    return np.unique(np.concatenate([every, tiles, tiles + 1, drawn, [most]])).astype(np.int64)


def _log_uniform(rng: np.random.Generator, low: int, high: Ints | int, points: int) -> Ints:
    """Integers from `low` to `high`, uniform in the logarithm."""
    top = np.log(np.maximum(high, low) + 1.0)
    drawn = np.exp(rng.uniform(0.0, 1.0, points) * (top - np.log(low)) + np.log(low))
    return np.minimum(np.floor(drawn), np.maximum(high, low)).astype(np.int64)


def _doubling(most: int) -> Ints:
    return np.unique(np.append(2 ** np.arange(int(np.log2(most)) + 1), most)).astype(np.int64)


def _prefill(chunk: int, context: int) -> tuple[Ints, Ints]:
    """Chunks (new, cached), new + cached <= context: a doubling grid and its rim, whole prompts, and random pairs."""
    rng = _rng(3)
    grid_new, grid_cached = (g.ravel() for g in np.meshgrid(_doubling(chunk), np.append(0, _doubling(context))))
    whole = _log_uniform(rng, 1, chunk, UNCACHED_POINTS)
    new = _log_uniform(rng, 1, chunk, PREFILL_POINTS)
    cached = _log_uniform(rng, 1, np.maximum(context - new, 1), PREFILL_POINTS)
    rim = _doubling(chunk)
    q = np.concatenate([grid_new, rim, whole, new])
    k = np.concatenate([grid_cached, context - rim, np.zeros_like(whole), cached])
    return _unique_pairs(q, k, q + k <= context)


def _decode(running: int, context: int, kv_tokens: int) -> tuple[Ints, Ints]:
    """Pairs (requests, mean context), requests x context <= kv_tokens: a doubling grid and random pairs."""
    rng = _rng(4)
    grid_requests, grid_context = (g.ravel() for g in np.meshgrid(_doubling(running), _doubling(context)))
    requests = _log_uniform(rng, 1, running, DECODE_POINTS)
    lengths = _log_uniform(rng, 1, np.minimum(kv_tokens // requests, context), DECODE_POINTS)
    d = np.concatenate([grid_requests, requests])
    c = np.concatenate([grid_context, lengths])
    return _unique_pairs(d, c, d * c <= kv_tokens)


def _unique_pairs(first: Ints, second: Ints, keep: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    pairs = np.unique(np.stack([first, second], axis=1)[keep], axis=0)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
