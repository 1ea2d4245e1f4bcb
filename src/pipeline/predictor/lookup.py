"""Times of single operations read from a `StepTable`, for checks and reports (a simulation reads whole steps)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.step_table import (
    StepTable,
    decode_attention_s,
    prefill_attention_s,
)

Floats = NDArray[np.float64]


def look_up_s(table: StepTable, operation: str, inputs: Floats) -> Floats:
    """Seconds (n,) of `operation` at `inputs` (n, f) within the table; dense holds the collectives."""
    if operation == "attention_prefill":
        return np.array([prefill_attention_s(table, q, k) for q, k in inputs])
    if operation == "attention_decode":
        return np.array([decode_attention_s(table, d, c) for d, c in inputs])
    counts = inputs[:, 0].astype(np.int64)
    return np.asarray((table.logits_s if operation == "logits" else table.dense_s)[counts])
