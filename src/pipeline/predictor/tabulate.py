"""Fitted operations tabulated once into the `StepTable` that simulations read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.fitted import Fitted
from pipeline.predictor.step_table import StepTable
from pipeline.values import EngineLimits

Floats = NDArray[np.float64]


def tabulate(fits: Mapping[str, Fitted], engine: EngineLimits, most_context: float) -> StepTable:
    """Tabulate every count exactly, and the ratios of the attention operations on their bins.

    most_context: longest new + cached tokens of a prefill among the samples. Without rows of logits, dense is taken to
    hold them.
    """
    most = engine.max_batched_tokens + engine.max_running
    dense_s, dense_slope_s = _by_count(fits["dense"], most)
    if "collective" in fits:
        collective_s, collective_slope_s = _by_count(fits["collective"], len(dense_s) - 1)
        dense_s, dense_slope_s = dense_s + collective_s, dense_slope_s + collective_slope_s
    no_logits = (np.zeros(1), 0.0)
    logits_s, logits_slope_s = _by_count(fits["logits"], engine.max_running) if "logits" in fits else no_logits
    prefill, decode = fits["attention_prefill"], fits["attention_decode"]
    sequences = fits["logits"].most[0] if "logits" in fits else np.inf
    profiled = np.array([fits["dense"].most[0], sequences, prefill.most[0], most_context, *decode.most])
    new_edges, cached_edges = prefill.edges
    count_edges, context_edges = decode.edges
    return StepTable(
        dense_s, dense_slope_s, logits_s, logits_slope_s,
        prefill.coefficients, new_edges, cached_edges, _ratios(prefill),
        decode.coefficients, count_edges, context_edges, _ratios(decode),
        profiled,
    )  # fmt: skip


def _by_count(fitted: Fitted, most: int) -> tuple[Floats, float]:
    """Seconds at every count 0..n, n >= `most`, nothing at 0; and seconds per count beyond."""
    counts = np.arange(max(most, int(fitted.most[0])) + 1, dtype=np.float64)[:, None]
    table_s = fitted.time_s(counts)
    table_s[0] = 0.0
    return table_s, fitted.slope_s()


def _ratios(fitted: Fitted) -> Floats:
    """Ratio of each pair of bins, (m + 1, p + 1)."""
    shape = tuple(edges.size + 1 for edges in fitted.edges)
    cells = np.stack(np.meshgrid(*(np.arange(size, dtype=np.float64) for size in shape), indexing="ij"), axis=-1)
    return fitted.ratio(cells.reshape(-1, len(shape))).reshape(shape)
