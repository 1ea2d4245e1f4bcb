"""How much slower attention is where decoding requests have unequal lengths: a forest over measured batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.corrections import SkewForest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SkewSamples:
    """Batches in which some decoding requests are longer than the rest, (n,) each.

    new, cached: tokens of a prefill chunk beside them, 0 without one; count: decoding requests, of which big_count
    have big_context KV tokens, and the others small_context. skewed_s, even_s: seconds of the batch, and of one whose
    requests all have the mean length.
    """

    new: Floats
    cached: Floats
    count: Floats
    big_count: Floats
    big_context: Floats
    small_context: Floats
    skewed_s: Floats
    even_s: Floats


def skew_features(s: SkewSamples) -> Floats:
    """Features (n, 7) as the look-up computes them (see joint_attention)."""
    share = s.big_count / s.count
    mean = share * s.big_context + (1 - share) * s.small_context
    spread = (s.big_context - s.small_context) * np.sqrt(share * (1 - share))
    sizes = [np.log2(1.0 + value) for value in (s.new, s.cached, s.count, mean, s.count * mean)]
    return np.column_stack([*sizes, spread / mean, s.big_context / mean])


def skew_forest(samples: SkewSamples, size: SkewForest, seed: int) -> tuple[Floats, Floats]:
    """Train on the log of the ratio; return nodes and roots of the trees as in JointAttention.

    Half of the rows are repeated as batches of equal lengths, whose ratio is 1.
    """
    from sklearn.ensemble import RandomForestRegressor

    features = skew_features(samples)
    target = np.log(samples.skewed_s / samples.even_s)
    rng = np.random.Generator(np.random.Philox(key=[seed, 0]))
    even = features[rng.permutation(len(features))[: len(features) // 2]].copy()
    even[:, 5], even[:, 6] = 0.0, 1.0
    forest = RandomForestRegressor(
        n_estimators=size.trees, min_samples_leaf=size.min_leaf_samples, random_state=seed, n_jobs=1
    )
    forest.fit(np.concatenate([features, even]), np.concatenate([target, np.zeros(len(even))]))
    nodes, roots, first = [], [], 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        leaf = tree.children_left < 0
        value = np.where(leaf, tree.value[:, 0, 0], tree.threshold)
        # The trees are grown depth first: the left child is the next node.
        nodes.append(np.column_stack([np.where(leaf, -1, tree.feature), value, tree.children_right + first]))
        roots.append(first)
        first += tree.node_count
    return np.concatenate(nodes).astype(np.float64), np.array(roots, np.float64)
