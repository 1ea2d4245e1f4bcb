"""Times of single operations read from a `StepTable`, for checks and reports (a simulation reads whole steps)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.step_table import StepTable
from pipeline.predictor.step_time import (
    TableRecord,
    cell,
    decode_contexts,
    decode_counts,
    decode_part_s,
    pack,
    prefill_attention_s,
)

Floats = NDArray[np.float64]


def look_up_s(table: StepTable, operation: str, inputs: Floats) -> Floats:
    """Seconds (n,) of `operation` at `inputs` (n, f) within the table; dense holds the collectives."""
    if not operation.startswith("attention_"):
        counts = inputs[:, 0].astype(np.int64)
        return np.asarray((table.logits_s if operation == "logits" else table.dense_s)[counts])
    record = pack(table)
    look_up = prefill_attention_s if operation == "attention_prefill" else _decode_attention_s
    return np.array([look_up(record, float(first), float(second)) for first, second in inputs])


def _decode_attention_s(t: TableRecord, requests: float, mean_tokens: float) -> float:
    count, context = cell(decode_counts(t), requests), cell(decode_contexts(t), mean_tokens)
    return float(decode_part_s(t, count, context, requests, mean_tokens)[0])
