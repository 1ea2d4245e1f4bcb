"""Small made-up kernel profiles, whose times can be worked out by hand."""

from __future__ import annotations

import numpy as np

from pipeline.predictor.corrections import Corrections, SkewForest
from pipeline.predictor.interpolation import Interpolation
from pipeline.predictor.kernel_tables import KernelTables
from pipeline.predictor.skew import SkewSamples
from pipeline.values import EngineLimits

INTERPOLATION = Interpolation(name="interpolation", held_out_ratio=0.2)
CORRECTIONS = Corrections(skew_forest=SkewForest(trees=60, min_leaf_samples=3), saved_share_ratio=0.9)
LIMITS = EngineLimits(tensor_parallel=1, max_running=8, max_batched_tokens=64)
NEW, CACHED, COUNT, CONTEXT = (16, 32, 64), (0, 16, 64), (1, 4, 8), (16, 64, 256)


def line(fixed_s: float, per_count_s: float, last: int = 64) -> np.ndarray:
    counts = np.array([1.0, 2.0, 4.0, 16.0, float(last)])
    return np.column_stack([counts, fixed_s + per_count_s * counts])


def batch_s(new: float, cached: float, count: float, context: float) -> float:
    """Linear in each coordinate: what interpolation gives back exactly."""
    return new * (1 + cached / 16) + count * (1 + context / 16)


def attention(skipped=lambda new, cached, count, context: False) -> np.ndarray:
    rows = [(q, k, 0, 0) for q in NEW for k in CACHED] + [(0, 0, d, c) for d in COUNT for c in CONTEXT]
    rows += [(q, k, d, c) for q in NEW for k in CACHED for d in COUNT for c in CONTEXT]
    return np.array([(*row, batch_s(*row)) for row in rows if not skipped(*row)], np.float64)


def skew_samples(count: int = 300) -> SkewSamples:
    rng = np.random.Generator(np.random.Philox(key=[7, 7]))
    requests = rng.integers(2, 9, count).astype(float)
    small = rng.integers(16, 100, count).astype(float)
    even = np.ones(count)
    big = small * rng.uniform(1.5, 4.0, count)
    slower = 1 + 0.1 * (big / small)
    return SkewSamples(np.zeros(count), np.zeros(count), requests, np.ones(count), big, small, even * slower, even)


def tables(skew: SkewSamples | None = None, **changes) -> KernelTables:
    dense = {"embedding": line(1.0, 0.0), "layernorm": line(10.0, 0.0), "qkv_proj": line(0.0, 100.0)}
    values = {"dense": dense, "per_sequence": {"lm_head": line(0.5, 0.0, 8)}, "attention": attention(), "skew": skew}
    return KernelTables(**(values | changes))
