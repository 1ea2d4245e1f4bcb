"""`Interpolation`: between the samples the ratio to the physical baseline is interpolated, without any smoothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.base import Predictor
from pipeline.predictor.batch_grid import batch_grid, scattered
from pipeline.predictor.bins import bin_middles
from pipeline.predictor.fitted import Regressor

Floats = NDArray[np.float64]


class Interpolation(Predictor):
    """By a count linear in it, by two inputs linear in their logarithms; beyond the samples the nearest one's ratio.

    Kernel tables are interpolated as they are, without a baseline.
    """

    def regressor(self, seed: int, input_count: int) -> Regressor:  # noqa: ARG002
        """Give an interpolator that knows nothing yet."""
        return Interpolator()

    def layer_s(self, rows: Floats, counts: Floats, seed: int) -> tuple[Floats, float]:  # noqa: ARG002
        """Interpolate linearly in the count; beyond, time goes on along the last two rows."""
        at, time_s = rows[np.argsort(rows[:, 0])].T
        slope_s = float((time_s[-1] - time_s[-2]) / (at[-1] - at[-2])) if at.size > 1 else 0.0
        beyond = np.maximum(counts - at[-1], 0.0) * slope_s
        return np.interp(counts, at, time_s) + beyond, slope_s

    def batches_s(self, rows: Floats, seed: int) -> tuple[list[Floats], Floats]:  # noqa: ARG002
        """Fill the grid between the batches that were measured."""
        return batch_grid(rows)


class Interpolator:
    """A regressor through its samples, of which those at one place (one bin) count as their mean."""

    def fit(self, features: Floats, target: Floats) -> None:
        """Keep the ratios exp(target) (n,) at the counts or bins `features` (n, f)."""
        self._places, owner, counts = np.unique(features, axis=0, return_inverse=True, return_counts=True)
        self._ratios = np.bincount(owner.ravel(), np.exp(target)) / counts

    def predict(self, features: Floats) -> Floats:
        """Log of the ratio (m,) at `features` (m, f)."""
        if features.shape[1] == 1:
            return np.log(np.interp(features[:, 0], self._places[:, 0], self._ratios))
        known, wanted = (np.log2(1.0 + bin_middles(places)) for places in (self._places, features))
        return np.log(scattered(known, self._ratios, wanted))
