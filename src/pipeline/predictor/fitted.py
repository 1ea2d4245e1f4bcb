"""One operation, fitted: a physical baseline times what a regressor learned of the ratio to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.baseline import fit_baseline, slope_s, terms
from pipeline.predictor.bins import bin_edges, bin_numbers
from pipeline.predictor.features import OperationSamples

Floats = NDArray[np.float64]


class Regressor(Protocol):
    """What is used of a scikit-learn regressor."""

    def fit(self, features: Floats, target: Floats) -> object:
        """Learn `target` (n,) from `features` (n, f)."""
        ...

    def predict(self, features: Floats) -> Floats:
        """Predict (m,) at `features` (m, f)."""
        ...


@dataclass(frozen=True)
class Fitted:
    """time = baseline(inputs) x exp(regressor(features)); without a regressor the baseline alone.

    edges: bins of each axis where the regressor sees bin numbers, empty where it sees the counts themselves.
    """

    operation: str
    coefficients: Floats
    edges: tuple[Floats, ...]
    regressor: Regressor | None
    most: Floats

    def features(self, inputs: Floats) -> Floats:
        """What the regressor sees of `inputs` (n, f)."""
        if not self.edges:
            return inputs
        return np.stack([bin_numbers(e, column) for e, column in zip(self.edges, inputs.T, strict=True)], axis=1)

    def ratio(self, features: Floats) -> Floats:
        """Ratio of time to baseline (n,) at the regressor's features (n, f)."""
        if self.regressor is None:
            return np.ones(len(features))
        return np.asarray(np.exp(self.regressor.predict(features)))

    def time_s(self, inputs: Floats) -> Floats:
        """Predicted seconds (n,) at `inputs` (n, f); beyond the samples the ratio of the nearest cell is kept."""
        baseline = terms(self.operation, inputs) @ self.coefficients
        return np.asarray(baseline * self.ratio(self.features(inputs)))

    def slope_s(self) -> float:
        """Seconds per token or sequence beyond the samples of an operation by a count."""
        return float(slope_s(self.coefficients) * self.ratio(self.features(self.most[None]))[0])


def fit(samples: OperationSamples, regressor: Regressor | None) -> Fitted:
    """Fit baseline and regressor to `samples`."""
    inputs, operation = samples.inputs, samples.operation
    coefficients = fit_baseline(operation, inputs, samples.time_s)
    most = inputs.max(axis=0)
    edges = tuple(bin_edges(top) for top in most) if inputs.shape[1] > 1 else ()
    fitted = Fitted(operation, coefficients, edges, regressor, most)
    if regressor is not None:
        baseline = terms(operation, inputs) @ coefficients
        regressor.fit(fitted.features(inputs), np.log(samples.time_s / baseline))
    return fitted
