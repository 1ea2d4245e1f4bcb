"""The profile of a case: times of its kernels, measured on its machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.fidelity.checked import CheckedTable, Floats, read_table
from pipeline.predictor.batch_grid import batch_coordinates
from pipeline.predictor.kernel_tables import KernelTables
from pipeline.predictor.skew import SkewSamples
from pipeline.spec import InputError

US = 1e-6
SKEW_ITERATIONS = 3
"""Timed iterations whose sum a skew time is."""
FEWEST_COUNTS = 2
"""Counts of tokens or sequences at the least: between fewer there is nothing to interpolate."""


def read_kernels(folder: Path, corrects_skew: bool) -> KernelTables:
    """Read the tables of a dense model. Raises InputError for a file or column that is missing or makes no sense."""
    return KernelTables(
        dense=_by_layer(folder / "dense.csv.gz", "tokens"),
        per_sequence=_by_layer(folder / "per_sequence.csv.gz", "sequences"),
        attention=_attention(folder / "attention.csv.gz"),
        skew=_skew(folder / "skew.csv.gz") if corrects_skew else None,
    )


def read_experts(path: Path) -> Floats:
    """Read (m, 3) tokens, experts in use, and seconds of one block of experts. Raises InputError as read_kernels."""
    table = read_table(path)
    tokens, used = (table.counts(name, 1) for name in ("tokens", "activated_experts"))
    rows = np.column_stack([tokens, used, table.numbers("time_us", 0.0) * US])
    table.refuse_repeated("tokens", "activated_experts")
    if np.unique(tokens).size < FEWEST_COUNTS:
        raise InputError(f"{path}: given times at {tokens[0]} tokens alone, expected two counts or more")
    return rows


def _attention(path: Path) -> Floats:
    table = read_table(path)
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    chunk, cached, decodes, context = (table.counts(name) for name in names)
    table.refuse((chunk == 0) & (decodes == 0), "a prefill_chunk or n_decode of 1 or more")
    table.refuse((chunk == 0) & (cached > 0), "a kv_prefill of 0 without a prefill_chunk")
    table.refuse((decodes > 0) != (context > 0), "an n_decode and a kv_decode of 1 or more, or of 0 both")
    rows = np.column_stack([chunk, cached, decodes, context, table.numbers("time_us", 0.0) * US])
    table.refuse_repeated(*names)
    try:
        batch_coordinates(rows)
    except InputError as exc:
        raise InputError(f"{path}: {exc}") from exc
    return rows


def _skew(path: Path) -> SkewSamples:
    table = read_table(path)
    new, cached = (table.counts(name).astype(np.float64) for name in ("pc", "kp"))
    count, big_count, big, small = (table.counts(name, 1).astype(np.float64) for name in ("n", "nb", "kv_big", "kvs"))
    table.refuse(big_count > count, "an nb of at most n")
    skewed_us, even_us = (table.numbers(name, 0.0) for name in ("t_skew_us", "t_mean_us"))
    each_s = US / SKEW_ITERATIONS
    return SkewSamples(new, cached, count, big_count, big, small, skewed_us * each_s, even_us * each_s)


def _by_layer(path: Path, count: str) -> dict[str, Floats]:
    table = read_table(path)
    layers, counts = table.texts("layer"), table.counts(count, 1)
    rows = np.column_stack([counts, table.times("time_us") * US])
    table.refuse_repeated("layer", count)
    return {str(layer): _several(table, str(layer), count, rows[layers == layer]) for layer in np.unique(layers)}


def _several(table: CheckedTable, layer: str, count: str, rows: Floats) -> Floats:
    if len(rows) < FEWEST_COUNTS:
        raise InputError(f"{table.path}: layer {layer}: given one count of {count}, expected two or more")
    return rows
