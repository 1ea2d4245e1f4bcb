"""A replayed run on disk: the profile of its machine, its requests, and what a real engine and a peer did with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from pipeline.predictor.kernel_tables import KernelTables
from pipeline.predictor.skew import SkewSamples
from pipeline.spec import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
US = 1e-6
META = (
    *("source_repo", "model", "hardware", "vllm_version", "engine", "model_shape", "tensor_parallel", "data_parallel"),
    *("block_size", "num_gpu_blocks", "skew_fit_enabled", "async_scheduling", "enable_prefix_caching"),
)
SKEW_ITERATIONS = 3
"""Timed iterations whose sum a skew time is."""


@dataclass(frozen=True)
class Times:
    """When the engine took each request (n,), and put out its first and its last token, in seconds."""

    taken_s: Floats
    first_token_s: Floats
    last_token_s: Floats


@dataclass(frozen=True)
class RunRequests:
    """Requests (n,) in order of arrival; the first prefix_blocks full blocks of a prompt equal those of request
    prefix_parent (-1 without one).
    """

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    prefix_parent: Ints
    prefix_blocks: Ints


@dataclass(frozen=True)
class Case:
    """One run. kv_blocks: of one engine, None where it was not recorded.

    experts: (m, 3) tokens, experts in use, seconds of one block of experts; None for a dense model.
    """

    name: str
    source: str
    kernels: KernelTables
    requests: RunRequests
    measured: Times
    peer: Times | None
    block_tokens: int
    kv_blocks: int | None
    max_running: int
    max_batched_tokens: int
    async_scheduling: bool
    prefix_cache: bool
    shape: dict[str, int]
    model: str
    hardware: str
    engine_version: str
    tensor_parallel: int
    data_parallel: int
    expert_parallel: bool
    experts: Floats | None


def read_case(folder: Path) -> Case:
    """Read a case folder. Raises InputError for a file or column that is missing, and for a run of an unknown kind."""
    meta = _meta(folder / "meta.json")
    engine = meta["engine"]
    requests, measured = _requests(folder / "requests.csv.gz")
    return Case(
        name=folder.name,
        source=str(meta["source_repo"]),
        kernels=_kernels(folder, bool(meta["skew_fit_enabled"])),
        requests=requests,
        measured=measured,
        peer=_peer(folder / "peer_sim.csv.gz"),
        block_tokens=int(meta["block_size"]),
        kv_blocks=None if meta["num_gpu_blocks"] is None else _count(folder, meta, "num_gpu_blocks"),
        max_running=int(engine["max_num_seqs"]),
        max_batched_tokens=int(engine["max_num_batched_tokens"]),
        async_scheduling=meta["async_scheduling"] is not False,
        prefix_cache=bool(meta["enable_prefix_caching"]),
        shape={name: int(value) for name, value in meta["model_shape"].items() if value is not None},
        model=str(meta["model"]),
        hardware=str(meta["hardware"]),
        engine_version=str(meta["vllm_version"]),
        tensor_parallel=_count(folder, meta, "tensor_parallel"),
        data_parallel=_count(folder, meta, "data_parallel"),
        expert_parallel=bool(engine["enable_expert_parallel"]),
        experts=_experts(folder / "moe.csv.gz") if meta["model_shape"]["num_experts"] else None,
    )


def _requests(path: Path) -> tuple[RunRequests, Times]:
    table = _columns(path)
    counts = ("input_tokens", "output_tokens", "prefix_parent", "prefix_blocks")
    requests = RunRequests(_need(path, table, "arrival_s"), *(_need(path, table, n).astype(np.int64) for n in counts))
    real = ("real_queued_s", "real_first_token_s", "real_last_token_s")
    rows = np.arange(requests.arrival_s.size)
    wrong = (requests.input_tokens < 1) | (requests.output_tokens < 1) | (requests.prefix_blocks < 0)
    wrong |= (requests.prefix_blocks > 0) & ((requests.prefix_parent < 0) | (requests.prefix_parent >= rows))
    wrong |= np.diff(requests.arrival_s, prepend=0.0) < 0
    if wrong.any() or not rows.size:
        where = f", row {int(np.argmax(wrong)) + 2}" if rows.size else ""
        raise InputError(
            f"{path}{where}: expected requests of at least one token in and out, in order of arrival from 0, whose "
            "prefix_parent is an earlier one"
        )
    return requests, Times(*(_need(path, table, name) for name in real))


def _need(path: Path, table: dict[str, Floats], name: str) -> Floats:
    if name not in table:
        raise InputError(f"{path}: column {name!r} is missing")
    return table[name]


def _count(folder: Path, meta: dict[str, Any], name: str) -> int:
    value = meta[name]
    if not isinstance(value, int) or value < 1:
        raise InputError(f"{folder / 'meta.json'}: {name}: given {value!r}, expected a count or null")
    return value


def _kernels(folder: Path, corrects_skew: bool) -> KernelTables:
    path = folder / "attention.csv.gz"
    attention = _columns(path)
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    return KernelTables(
        dense=_by_layer(folder / "dense.csv.gz", "tokens"),
        per_sequence=_by_layer(folder / "per_sequence.csv.gz", "sequences"),
        attention=np.column_stack(
            [*(_need(folder / "attention.csv.gz", attention, name) for name in names), attention["time_us"] * US]
        ),
        skew=_skew(folder / "skew.csv.gz") if corrects_skew else None,
    )


def _experts(path: Path) -> Floats:
    table = _columns(path)
    names = ("tokens", "activated_experts", "time_us")
    tokens, used, time_us = (_need(path, table, name) for name in names)
    return np.column_stack([tokens, used, time_us * US])


def _skew(path: Path) -> SkewSamples:
    table = _columns(path)
    each_s = US / SKEW_ITERATIONS
    new, cached, count, big_count, big, small, skewed, even = (
        _need(path, table, name) for name in ("pc", "kp", "n", "nb", "kv_big", "kvs", "t_skew_us", "t_mean_us")
    )
    return SkewSamples(new, cached, count, big_count, big, small, skewed * each_s, even * each_s)


def _by_layer(path: Path, count: str) -> dict[str, Floats]:
    table = _read(path)
    rows = np.column_stack([_number(path, table, count), _number(path, table, "time_us") * US])
    if not (np.isfinite(rows).all() and (rows >= 0).all()):
        raise InputError(f"{path}: expected counts and times of 0 or more in every row")
    if "layer" not in table.column_names or not len(rows):
        raise InputError(f"{path}: expected rows with a column 'layer'")
    layers = np.array(table["layer"].to_pylist())
    return {str(layer): rows[layers == layer] for layer in np.unique(layers)}


def _peer(path: Path) -> Times | None:
    if not path.exists():
        return None
    table = _columns(path)
    order = np.argsort(table["request"], kind="stable")
    arrival, first, last = table["arrival_ns"], table["ttft_ns"], table["latency_ns"]
    return Times(*(1e-9 * value[order] for value in (arrival, arrival + first, arrival + last)))


def _meta(path: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as exc:
        raise InputError(f"{path}: expected a readable JSON file ({exc})") from exc
    missing = [name for name in META if name not in meta]
    if missing:
        raise InputError(f"{path}: missing {', '.join(missing)}")
    return meta


def _read(path: Path) -> pa.Table:
    try:
        return pa.csv.read_csv(path)
    except (OSError, pa.ArrowInvalid) as exc:
        raise InputError(f"{path}: expected a readable table ({exc})") from exc


def _columns(path: Path) -> dict[str, Floats]:
    """Every column that holds numbers."""
    table = _read(path)
    numbers = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    return {name: _number(path, table, name) for name in numbers}


def _number(path: Path, table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        raise InputError(f"{path}: column {name!r} is missing")
    return np.asarray(table[name].to_numpy().astype(np.float64))
