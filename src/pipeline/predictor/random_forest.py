"""`RandomForest`: a random forest per operation over the ratio to its physical baseline."""

from __future__ import annotations

from pipeline.predictor.base import Predictor
from pipeline.predictor.fitted import Regressor
from pipeline.spec import Count, Ratio


class RandomForest(Predictor):
    """scikit-learn's RandomForestRegressor: `trees` trees, leaves of at least `min_leaf_samples`.

    split_inputs_ratio: share of the inputs tried at a split, which is what makes trees of two inputs differ. bootstrap:
    whether each tree sees a resample. It averages noise of repeated measurements, but where samples have none it blurs
    real stairs (one row and two take different kernels, 3-10 % apart).
    """

    trees: Count
    min_leaf_samples: Count
    split_inputs_ratio: Ratio
    bootstrap: bool

    def regressor(self, seed: int) -> Regressor:
        """Give a fresh forest."""
        from sklearn.ensemble import RandomForestRegressor

        forest: Regressor = RandomForestRegressor(
            n_estimators=self.trees,
            min_samples_leaf=self.min_leaf_samples,
            max_features=self.split_inputs_ratio,
            bootstrap=self.bootstrap,
            random_state=seed,
            n_jobs=1,
        )
        return forest
