"""Rows of the table predictor_accuracy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def accuracy_row(operation: str, split: str, predicted_s: Floats, actual_s: Floats, against: str) -> dict[str, object]:
    """Compare predicted with actual seconds, arrays (n,), n > 0."""
    errors = np.abs(predicted_s / actual_s - 1)
    return {
        "operation": operation,
        "split": split,
        "sample_count": len(errors),
        "mape_ratio": float(errors.mean()),
        "p95_error_ratio": float(np.quantile(errors, 0.95)),
        "against": against,
    }
