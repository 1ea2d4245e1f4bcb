"""Least-squares fits of physical models to measured times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class LineFit(NamedTuple):
    """time = latency_s + bytes / bandwidth_bytes_per_s, and the mean absolute relative error of that."""

    bandwidth_bytes_per_s: float
    latency_s: float
    fit_error_ratio: float


def fit_relative(features: Floats, time_s: Floats) -> tuple[Floats, float]:
    """Fit non-negative coefficients that minimise the squared *relative* error; features (n, f), times (n,) > 0.

    Returns the coefficients (f,) and the mean absolute relative error.
    """
    from scipy.optimize import nnls

    coefficients, _ = nnls(features / time_s[:, None], np.ones_like(time_s))
    errors = np.abs(features @ coefficients / time_s - 1)
    return coefficients, float(errors.mean())


def fit_line(moved_bytes: Floats, time_s: Floats) -> LineFit:
    """Fit latency and bandwidth to transfers of different sizes, arrays (n,).

    Where time does not grow with size at all, the bandwidth is the best one seen.
    """
    coefficients, error = fit_relative(np.stack([np.ones_like(moved_bytes), moved_bytes], axis=1), time_s)
    latency_s, per_byte_s = (float(value) for value in coefficients)
    best = float((moved_bytes / time_s).max())
    return LineFit(1 / per_byte_s if per_byte_s > 0 else best, latency_s, error)
