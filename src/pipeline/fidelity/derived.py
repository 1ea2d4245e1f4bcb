"""Parts of a step that the profile of a run does not hold as such, derived from other measurements.

All-reduces of tensor parallelism come from the tables of the package aiconfigurator-core, measured through the same
serving engine; a block of experts from times by tokens and experts in use, of which as many are taken as uniformly
routed tokens would use.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.predictor.batch_grid import filled
from pipeline.spec import InputError

Floats = NDArray[np.float64]
MODULE = "aiconfigurator_core"
MS = 1e-3
GRAPH, EAGER = "vLLM_custom_graph", "vLLM_custom_eager"


def all_reduce_table(
    system: str, engine_version: str, ranks: int, hidden: int, graph_tokens: int, most_tokens: int
) -> tuple[Floats, str]:
    """Seconds (tokens, 2) of an all-reduce of one layer's output over `ranks`, by tokens; and where they are from.

    system: the package's name of the hardware. graph_tokens: a step up to there runs as a CUDA graph. Of the engine's
    versions that were measured, its own is taken, or else the newest. Raises InputError where there is no such table.
    """
    folder = _package() / "systems" / "data" / system / "comm" / "vllm"
    versions = sorted((path.parent.name for path in folder.glob("*/custom_allreduce_perf.parquet")), key=_numbers)
    if not versions:
        raise InputError(f"fidelity.systems: given {system!r}, for which {MODULE} holds no all-reduces of vLLM")
    version = engine_version if engine_version in versions else versions[-1]
    table = pq.read_table(folder / version / "custom_allreduce_perf.parquet")
    names = ("kernel_source", "num_gpus", "message_size", "latency")
    columns = {name: np.array(table[name].to_pylist()) for name in names}
    tokens = np.arange(1.0, most_tokens + 1)
    kinds = []
    for kind in (GRAPH, EAGER):
        chosen = (columns["num_gpus"] == ranks) & (columns["kernel_source"] == kind)
        if not chosen.any():
            raise InputError(f"fidelity: {MODULE} holds no all-reduce of {kind} over {ranks} ranks of {system}")
        order = np.argsort(columns["message_size"][chosen])
        # Messages are counted in elements.
        elements, latency_ms = (columns[name][chosen][order] for name in ("message_size", "latency"))
        kinds.append(np.interp(tokens * hidden, elements, latency_ms) * MS)
    time_s = np.where(tokens <= graph_tokens, *kinds)
    return np.column_stack([tokens, time_s]), f"all-reduce: {MODULE} {system} vllm {version}"


def experts_table(rows: Floats, experts: int, experts_per_token: float, most_tokens: int) -> Floats:
    """Seconds (tokens, 2) of one block of experts by tokens, where each token uses `experts_per_token` at random.

    rows: (m, 3) tokens, experts in use, seconds. experts: those that the rank holds.
    """
    grids = [np.unique(rows[:, i]) for i in range(2)]
    time_s = np.full([grid.size for grid in grids], np.nan)
    time_s[np.searchsorted(grids[0], rows[:, 0]), np.searchsorted(grids[1], rows[:, 1])] = rows[:, 2]
    time_s = filled(time_s, grids)
    tokens = np.arange(1.0, most_tokens + 1)
    used = experts * (1 - (1 - experts_per_token / experts) ** tokens)
    by_experts = np.array([[np.interp(count, grids[1], row) for row in time_s] for count in used])
    return np.column_stack([tokens, [np.interp(t, grids[0], row) for t, row in zip(tokens, by_experts, strict=True)]])


def _package() -> Path:
    found = importlib.util.find_spec(MODULE)
    if found is None or found.origin is None:
        raise InputError(f"fidelity: tensor parallelism needs the package {MODULE} (Linux x86-64)")
    return Path(found.origin).parent


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
