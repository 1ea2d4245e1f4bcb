"""`Corrections`: what makes whole steps of single kernels, beside their sum."""

from __future__ import annotations

from pipeline.spec import Count, NonNegative, Ratio, Spec


class SkewForest(Spec):
    """Size of the random forest that learns what unequal decode lengths cost: `trees`, of at least so large leaves."""

    trees: Count
    min_leaf_samples: Count


class Corrections(Spec):
    """What a step takes other than the sum of its kernels.

    saved_share_ratio: of the time that a missing query-key pair seems to save, where several short chunks stand as one
    long chunk. prefill_step_s: added to a step with a prefill.
    """

    skew_forest: SkewForest
    saved_share_ratio: Ratio
    prefill_step_s: NonNegative = 0.0
