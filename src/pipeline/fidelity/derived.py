"""Parts of a step that the profile of a run does not hold as such, derived from other measurements.

Collectives between ranks come from the tables of the package aiconfigurator-core: all-reduces of tensor parallelism as
measured through the same serving engine, the exchange of tokens between data-parallel engines as measured of NCCL. A
block of experts is timed by tokens and experts in use, of which as many are taken as uniformly routed tokens would use.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.predictor.batch_grid import filled
from pipeline.spec import InputError

Floats = NDArray[np.float64]
Latency = Callable[[Floats], Floats]
MODULE = "aiconfigurator_core"
MS = 1e-3
GRAPH, EAGER = "vLLM_custom_graph", "vLLM_custom_eager"
EXCHANGE = ("all_gather", "reduce_scatter")
"""Collectives around a block of experts, over the data-parallel engines: vLLM's default `allgather_reducescatter`."""


def all_reduce_table(
    system: str, engine_version: str, ranks: int, hidden: int, graph_tokens: int, most_tokens: int
) -> tuple[Floats, str]:
    """Seconds (tokens, 2) of an all-reduce of one layer's output over `ranks`, by tokens; and where they are from.

    system: the package's name of the hardware. graph_tokens: a step up to there runs as a CUDA graph. Of the engine's
    versions that were measured over so many ranks, the nearest is taken. Raises InputError where there is none.
    """
    files = _files(system, "vllm", "custom_allreduce_perf")
    if not files:
        raise InputError(f"fidelity.systems: given {system!r}, for which {MODULE} holds no all-reduces of vLLM")
    kinds = {
        version: [_latency(path, ranks, {"kernel_source": kind}) for kind in (GRAPH, EAGER)]
        for version, path in files.items()
    }
    known = {version: (graph, eager) for version, (graph, eager) in kinds.items() if graph and eager}
    if not known:
        raise InputError(f"fidelity: {MODULE} holds no all-reduce of vLLM over {ranks} ranks of {system}")
    version = min(reversed(list(known)), key=lambda measured: _apart(measured, engine_version))
    tokens = np.arange(1.0, most_tokens + 1)
    graph, eager = known[version]
    time_s = np.where(tokens <= graph_tokens, graph(tokens * hidden), eager(tokens * hidden))
    instead = f" for {engine_version}, not measured over {ranks} ranks"
    told = f"all-reduce ({MODULE} {system} vllm {version}{'' if version == engine_version else instead})"
    return np.column_stack([tokens, time_s]), told


def exchange_tables(system: str | None, engines: int, hidden: int, most_tokens: int) -> tuple[dict[str, Floats], str]:
    """Seconds (tokens, 2) of each collective that exchanges tokens between engines, by tokens of one; their source.

    All engines are taken to have as many tokens. Without measured ones the exchange is left out, and that is said.
    """
    files = {} if system is None else _files(system, "nccl", "nccl_perf")
    tokens = np.arange(1.0, most_tokens + 1)
    for version in reversed(list(files)):
        kinds = {name: _latency(files[version], engines, {"op_name": name, "nccl_dtype": "half"}) for name in EXCHANGE}
        found = {
            # Messages are counted in elements of the whole, over all engines.
            name: np.column_stack([tokens, latency(tokens * engines * hidden)])
            for name, latency in kinds.items()
            if latency is not None
        }
        if len(found) == len(EXCHANGE):
            return found, f"exchange of tokens (all-gather and reduce-scatter: {MODULE} {system} nccl {version})"
    where = "hardware without an entry in fidelity.systems" if system is None else system
    return {}, f"exchange of tokens (left out: not measured over {engines} ranks of {where})"


def experts_table(rows: Floats, experts: float, experts_per_token: float, most_tokens: int, engines: int = 1) -> Floats:
    """Seconds (tokens, 2) of one block of experts by tokens of an engine, each using `experts_per_token` at random.

    rows: (m, 3) tokens, experts in use, seconds. experts: those that the rank holds. engines: how many send it as many
    tokens each. Beyond what was measured time goes on along the last two points.
    """
    grids = [np.unique(rows[:, i]) for i in range(2)]
    time_s = np.full([grid.size for grid in grids], np.nan)
    time_s[np.searchsorted(grids[0], rows[:, 0]), np.searchsorted(grids[1], rows[:, 1])] = rows[:, 2]
    time_s = filled(time_s, grids)
    tokens = np.arange(1.0, most_tokens + 1)
    used = experts * (1 - (1 - experts_per_token / experts) ** (tokens * engines))
    by_experts = np.array([_extended(used, grids[1], row) for row in time_s])
    low, share = _cell(tokens * engines, grids[0])
    each = np.arange(tokens.size)
    below_s, above_s = by_experts[low, each], by_experts[np.minimum(low + 1, grids[0].size - 1), each]
    return np.column_stack([tokens, below_s + share * (above_s - below_s)])


def _cell(at: Floats, grid: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Grid point below each value, and the share of the way to the next: 0 below the grid, beyond 1 above it."""
    if grid.size == 1:
        return np.zeros(at.size, np.int64), np.zeros(at.size)
    low = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, grid.size - 2)
    return low, np.maximum((at - grid[low]) / (grid[low + 1] - grid[low]), 0.0)


def _extended(at: Floats, grid: Floats, values: Floats) -> Floats:
    """Interpolate linearly; below the grid its first value holds, beyond it goes on along the last two."""
    low, share = _cell(at, grid)
    above = values[np.minimum(low + 1, grid.size - 1)]
    return np.asarray(values[low] + share * (above - values[low]))


def _files(system: str, engine: str, name: str) -> dict[str, Path]:
    """Tables of a kind of collectives by version, ascending."""
    found = importlib.util.find_spec(MODULE)
    if found is None or found.origin is None:
        raise InputError(f"fidelity: tensor and expert parallelism need the package {MODULE} (Linux x86-64)")
    folder = Path(found.origin).parent / "systems" / "data" / system / "comm" / engine
    files = {path.parent.name: path for path in folder.glob(f"*/{name}.parquet")}
    return dict(sorted(files.items(), key=lambda item: _numbers(item[0])))


def _latency(path: Path, ranks: int, kind: dict[str, str]) -> Latency | None:
    """Seconds of a collective over `ranks` by elements; None where it was not measured."""
    table = pq.read_table(path).filter(pc.field("num_gpus") == ranks)
    for column, value in kind.items():
        table = table.filter(pc.field(column) == value)
    if not table.num_rows:
        return None
    elements, of = np.unique(table["message_size"].to_numpy().astype(np.float64), return_inverse=True)
    latency_ms = np.bincount(of.ravel(), table["latency"].to_numpy()) / np.bincount(of.ravel())
    return lambda sizes: _extended(sizes, elements, latency_ms * MS)


def _apart(version: str, other: str) -> tuple[int, ...]:
    """How far apart two versions are, part by part."""
    pairs = zip(_numbers(version), _numbers(other), strict=False)
    return tuple(abs(one - two) for one, two in pairs)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
