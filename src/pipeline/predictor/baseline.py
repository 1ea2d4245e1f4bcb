"""Physical baselines: non-negative sums of terms that an operation's time is made of.

They carry the shape inside the profiled range, so that a forest learns only the ratio to them, and go on beyond it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
KNEE_TOKENS = (64, 128, 256, 512, 1024)
TWO_DIMENSIONAL = ("attention_prefill", "attention_decode")
FASTEST = 2  # position of the term that grows fastest among the terms of attention
LARGEST_QUANTILE = 0.9


def terms(operation: str, inputs: Floats) -> Floats:
    """Terms (n, t) of `operation` at `inputs` (n, f).

    By a count x (tokens or sequences): 1, x and a ramp above each knee, since reading weights costs the same until
    arithmetic takes over. Prefill of q over k: 1, q, q (k + q/2), q + k. Decode of d over c: 1, d, d c. Both in one
    batch: all of them.
    """
    one = np.ones(len(inputs))
    if operation == "attention_prefill":
        q, k = inputs.T
        columns = [one, q, q * (k + q / 2), q + k]
    elif operation == "attention_decode":
        d, c = inputs.T
        columns = [one, d, d * c]
    elif operation == "attention_mixed":
        q, k, d, c = inputs.T
        columns = [one, q, q * (k + q / 2), q + k, d, d * c]
    else:
        x = inputs[:, 0]
        columns = [one, x, *(np.maximum(x - knee, 0.0) for knee in KNEE_TOKENS)]
    return np.stack(columns, axis=1)


def fit_baseline(operation: str, inputs: Floats, time_s: Floats) -> Floats:
    """Fit the coefficients (t,) of the terms, none negative, by least squares on the relative error.

    For attention the term that grows fastest (query-key pairs; requests x context) is fitted first, to the tenth of
    the samples where it is largest: it alone decides how times go on beyond the samples.
    """
    features = terms(operation, inputs)
    if operation not in TWO_DIMENSIONAL:
        return _fit(features, time_s, time_s)
    growth = features[:, FASTEST]
    largest = growth >= np.quantile(growth, LARGEST_QUANTILE)
    asymptote = _fit(features[largest], time_s[largest], time_s[largest])[FASTEST]
    others = np.delete(np.arange(features.shape[1]), FASTEST)
    left_s = np.maximum(time_s - asymptote * growth, 0.0)
    coefficients = np.full(features.shape[1], asymptote)
    coefficients[others] = _fit(features[:, others], left_s, time_s)
    return coefficients


def _fit(features: Floats, target_s: Floats, scale_s: Floats) -> Floats:
    """Minimise the sum of ((features x coefficients - target) / scale)^2 over coefficients >= 0."""
    from scipy.optimize import nnls

    coefficients, _ = nnls(features / scale_s[:, None], target_s / scale_s)
    return np.asarray(coefficients)


def slope_s(coefficients: Floats) -> float:
    """Seconds per token or sequence beyond the last knee."""
    return float(coefficients[1:].sum())
