"""Attention of a whole step, prefill and decode together, looked up in times measured of such batches.

Interpolated linearly between grid points in four coordinates: the chunk of new tokens, the tokens cached before it,
the decoding requests, and their mean KV tokens; what lies beyond the grid goes on along its last two points. Decoding
requests of unequal length are slower or faster than as many of the mean length, by a ratio that a forest has learned
from measured pairs of batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NONE: Floats = np.zeros(0)
NO_TREES: Floats = np.zeros((0, 3))


class JointAttention(NamedTuple):
    """Seconds of attention, all layers.

    new, cached, decodes, context: ascending grids of the four coordinates; time_s: flat, in that order.
    trees (nodes, 3): feature, or -1 in a leaf; threshold, or the leaf's value; node of the right child, that of the
        left being the next one. roots: first node of each tree. They give the log of the ratio; no roots, no ratio.
    saved_share: of the time that a missing query-key pair seems to save, where several short chunks stand as one long.
    """

    new: Floats
    cached: Floats
    decodes: Floats
    context: Floats
    time_s: Floats
    trees: Floats
    roots: Floats
    saved_share: float


NO_JOINT = JointAttention(NONE, NONE, NONE, NONE, NONE, NO_TREES, NONE, 0.0)


@njit(cache=True)
def position(grid: Floats, value: float) -> tuple[int, float]:
    """Grid point below `value`, and the share of the way to the next; 0 below the grid, beyond 1 above it."""
    if grid.size == 1 or value <= grid[0]:
        return 0, 0.0
    low, high = 0, grid.size - 2
    while low < high:
        middle = (low + high + 1) // 2
        if grid[middle] <= value:
            low = middle
        else:
            high = middle - 1
    return low, (value - grid[low]) / (grid[low + 1] - grid[low])


@njit(cache=True)
def batch_s(j: JointAttention, new: float, cached: float, count: float, context: float) -> float:
    """Seconds of one chunk and `count` decoding requests that all have `context` tokens."""
    a, share_a = position(j.new, new)
    b, share_b = position(j.cached, cached)
    c, share_c = position(j.decodes, count)
    d, share_d = position(j.context, context)
    total = 0.0
    for corner in range(16):
        weight, at = 1.0, 0
        for grid, low, share, bit in (
            (j.new, a, share_a, 8),
            (j.cached, b, share_b, 4),
            (j.decodes, c, share_c, 2),
            (j.context, d, share_d, 1),
        ):
            upper = corner & bit != 0
            weight *= share if upper else 1.0 - share
            at = at * grid.size + min(low + upper, grid.size - 1)
        if weight != 0.0:
            total += weight * j.time_s[at]
    return total


@njit(cache=True)
def log_ratio(j: JointAttention, features: NDArray[np.float32]) -> float:
    """Mean of the trees at `features`, which sklearn compares in single precision."""
    total = 0.0
    for root in j.roots:
        node = int(root)
        while j.trees[node, 0] >= 0.0:
            goes_left = features[int(j.trees[node, 0])] <= j.trees[node, 1]
            node = node + 1 if goes_left else int(j.trees[node, 2])
        total += j.trees[node, 1]
    return total / j.roots.size


@njit(cache=True)
def joint_attention_s(
    j: JointAttention, new: float, pairs: float, count: float, mean: float, spread: float, most: float
) -> tuple[float, bool]:
    """Seconds of attention of a step, and whether it lies outside the measured grid.

    new, pairs: tokens of all chunks, and their query-key pairs: one chunk of as many tokens and pairs stands for them.
    count: decoding requests; mean, spread, most: mean, standard deviation and maximum of their cached tokens.
    """
    cached = pairs / new - new / 2 if new > 0.0 else 0.0
    time_s = batch_s(j, new, max(cached, 0.0), count, mean)
    if cached < 0.0:
        missing = 1.0 - pairs / (new * new / 2)
        saved_s = j.saved_share * missing * batch_s(j, new, 0.0, 0.0, mean)
        time_s = max(time_s - saved_s, batch_s(j, 0.0, 0.0, count, mean))
    if j.roots.size > 0 and spread > 0.0:
        features = np.empty(7, np.float32)
        features[0] = np.log2(1.0 + new)
        features[1] = np.log2(1.0 + max(cached, 0.0))
        features[2] = np.log2(1.0 + count)
        features[3] = np.log2(1.0 + mean)
        features[4] = np.log2(1.0 + count * mean)
        features[5] = spread / mean
        features[6] = most / mean
        time_s *= np.exp(log_ratio(j, features))
    outside = (
        new > j.new[-1] or cached > j.cached[-1] or count > j.decodes[-1] or (count > 0.0 and mean > j.context[-1])
    )
    return time_s, outside
