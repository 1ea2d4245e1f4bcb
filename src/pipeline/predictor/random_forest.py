"""`RandomForest`: a random forest per operation over the ratio to its physical baseline."""

from __future__ import annotations

from pipeline.predictor.base import Predictor
from pipeline.predictor.fitted import Regressor
from pipeline.spec import Count


class RandomForest(Predictor):
    """scikit-learn's RandomForestRegressor: `trees` trees, leaves of at least `min_leaf_samples`.

    Trees over two inputs see a resample each. Over one input (counts) they see every sample: one row and two take
    different kernels, 3-10 % apart, and a resample that misses a count would blur such stairs. All trees would
    then be alike, so one is grown.
    """

    trees: Count
    min_leaf_samples: Count

    def regressor(self, seed: int, input_count: int) -> Regressor:
        """Give a fresh forest."""
        from sklearn.ensemble import RandomForestRegressor

        forest: Regressor = RandomForestRegressor(
            n_estimators=self.trees if input_count > 1 else 1,
            min_samples_leaf=self.min_leaf_samples,
            bootstrap=input_count > 1,
            random_state=seed,
            n_jobs=1,
        )
        return forest
