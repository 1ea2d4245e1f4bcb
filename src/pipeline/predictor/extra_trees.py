"""`ExtraTrees`: extremely randomised trees per operation over the ratio to its physical baseline."""

from __future__ import annotations

from pipeline.predictor.base import Predictor
from pipeline.predictor.fitted import Regressor
from pipeline.spec import Count


class ExtraTrees(Predictor):
    """scikit-learn's ExtraTreesRegressor: `trees` trees, leaves of at least `min_leaf_samples`."""

    trees: Count
    min_leaf_samples: Count

    def regressor(self, seed: int) -> Regressor:
        """Give fresh trees."""
        from sklearn.ensemble import ExtraTreesRegressor

        trees: Regressor = ExtraTreesRegressor(
            n_estimators=self.trees, min_samples_leaf=self.min_leaf_samples, random_state=seed, n_jobs=1
        )
        return trees
