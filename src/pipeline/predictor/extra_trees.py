"""`ExtraTrees`: extremely randomised trees per operation over the ratio to its physical baseline."""

from __future__ import annotations

from pipeline.predictor.base import Predictor
from pipeline.predictor.fitted import Regressor
from pipeline.spec import Count


class ExtraTrees(Predictor):
    """scikit-learn's ExtraTreesRegressor: `trees` trees, leaves of at least `min_leaf_samples`.

    Every tree sees every sample and splits at random thresholds, so that their mean runs smoothly between samples.
    """

    trees: Count
    min_leaf_samples: Count

    def regressor(self, seed: int, input_count: int) -> Regressor:  # noqa: ARG002
        """Give fresh trees."""
        from sklearn.ensemble import ExtraTreesRegressor

        trees: Regressor = ExtraTreesRegressor(
            n_estimators=self.trees, min_samples_leaf=self.min_leaf_samples, random_state=seed, n_jobs=1
        )
        return trees
