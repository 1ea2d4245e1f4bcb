"""From a cell to its simulation, and from that to rows of `cells` and `provenance`."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from pipeline.cell import Cell
from pipeline.hardware.base import LinkConstants, links_of
from pipeline.hardware.spec import Shared
from pipeline.predictor.step_table import StepTable
from pipeline.predictor.tau import Taus, router_taus
from pipeline.provenance import digest
from pipeline.schema import CELLS, PROVENANCE
from pipeline.serving.recorder import Figures
from pipeline.serving.scenario import Scenario
from pipeline.serving.wiring import LinkLimits
from pipeline.spec import Sourced
from pipeline.tables import from_rows
from pipeline.trace.base import GENERATED
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.reuse import ZERO_REUSE_HIT_RATIO, infinite_cache_hit_ratio
from pipeline.trace.shaping import mean_rate_per_s

CALIBRATED = ("silicon_interpolated", "measured")
"""Sources of step times that rest on measurements of the very hardware; the others are scaled and datasheet."""
OPTIONS = (
    *("model", "hardware", "predictor", "engine", "trace", "tiers"),
    *("eviction", "placement", "prefetch", "routing", "cluster", "slo"),
)
SOFTWARE = ("numpy", "numba", "scikit-learn", "simpy")


@dataclass(frozen=True)
class Plant:
    """What a calibration says of an instance: step times, links, and where they come from."""

    step_table: StepTable
    links: Mapping[tuple[str, str], LinkConstants]
    source: str
    constants: pa.Table

    @property
    def is_calibrated(self) -> bool:
        """Whether measurements of this very hardware stand behind the step times."""
        return self.source in CALIBRATED


def make_plant(step_table: StepTable, link_calibration: pa.Table, constants: pa.Table, step_samples: pa.Table) -> Plant:
    """Put together what the stages calibrate and train wrote."""
    (source,) = set(step_samples["source"].to_pylist())
    return Plant(step_table, links_of(link_calibration), source, constants)


def scenario_of(cell: Cell, trace: RequestTrace, plant: Plant) -> Scenario:
    """The simulation of `cell` with `trace` as its traffic, already at its rate."""
    taus = router_taus(plant.step_table, cell.tau)
    return Scenario(
        trace=trace,
        model=cell.model,
        engine=cell.engine,
        capacity_blocks=cell.capacity_blocks(trace.block_tokens).tolist(),
        eviction=cell.eviction,
        placement=cell.placement,
        prefetch=cell.prefetch,
        step_table=plant.step_table,
        links=plant.links,
        instances_per_node=max(cell.hardware.gpus_per_node // cell.engine.tensor_parallel, 1),
        cluster=cell.cluster,
        router=cell.routing,
        length=cell.length,
        prefill_s_per_token=taus.prefill_s_per_token,
        decode_s_per_token=taus.decode_s_per_token,
        slo=cell.slo,
        seed=cell.seed,
        shared_by={tier: str(scope) for tier, scope in cell.tiers.shared_by.items()},
        link_limits=_limits(cell.hardware.shared),
        hbm_bytes_per_s=cell.hardware.hbm_bytes_per_s.value,
    )


def _limits(shared: Shared) -> LinkLimits:
    """What links share, without its sources."""

    def value(given: Sourced | None) -> float | None:
        return None if given is None else given.value

    return LinkLimits(
        both_ways_bytes_per_s=value(shared.dram_link_both_ways_bytes_per_s),
        switch_bytes_per_s=value(shared.switch_bytes_per_s),
        gpus_per_switch=shared.gpus_per_switch,
        host_dram_bytes_per_s=value(shared.host_dram_bytes_per_s),
        pool_bytes_per_s=value(shared.pool_bytes_per_s),
    )


@dataclass(frozen=True)
class Told:
    """What is known of a cell beside its configuration: where it belongs, what it rests on, its offered rate."""

    cell_id: str
    stage: str
    study: str
    choices: Mapping[str, str]
    axes: Mapping[str, Any]
    values: Mapping[str, Any]
    code: str
    capacity_per_s: float | None
    offered_per_s: float


def cell_id_of(item: Mapping[str, Any], code: str) -> str:
    """Name of a simulation: a digest of its configuration, what it rests on and the code that runs it."""
    return digest([item["values"], item["upstream"], code])


def rate_per_s(cell: Cell, capacity_per_s: float | None, trace: RequestTrace) -> float:
    """Requests per second that the load asks for."""
    share = cell.load.share_of_capacity_ratio if cell.load else None
    if share is not None and capacity_per_s is not None:
        return share * capacity_per_s
    return (cell.load.rate_per_s if cell.load else None) or mean_rate_per_s(trace)


def cells_row(told: Told, trace: RequestTrace, plant: Plant, taus: Taus, figures: Figures) -> pa.Table:
    """One row of `cells`."""
    columns = {name: _name(told, name) for name in OPTIONS}
    row = {
        "cell_id": told.cell_id,
        "stage": told.stage,
        "study": told.study,
        **columns,
        "seed": told.values["seed"],
        "axes": json.dumps(told.axes, sort_keys=True),
        "code_digest": told.code,
        "config": json.dumps(told.values, sort_keys=True),
        "calibration_source": plant.source,
        "is_calibrated": plant.is_calibrated,
        "capacity_per_s": told.capacity_per_s,
        "offered_per_s": told.offered_per_s,
        "arrived_per_s": figures.arrived_per_s,
        "measured_s": figures.measured_s,
        "is_settled": figures.is_settled,
        "tau_prefill_s_per_token": taus.prefill_s_per_token,
        "tau_decode_s_per_token": taus.decode_s_per_token,
        "makespan_s": figures.makespan_s,
        "mean_running_count": figures.mean_running_count,
        "p90_running_count": figures.p90_running_count,
        "extrapolated_time_ratio": figures.extrapolated_time_ratio,
        "zero_reuse_hit_ratio": ZERO_REUSE_HIT_RATIO,
        "infinite_cache_hit_ratio": infinite_cache_hit_ratio(trace),
        "has_prefixes": trace.has_prefixes,
    }
    return from_rows(CELLS, [row])


def _name(told: Told, group: str) -> str:
    """What a cell calls its option: the name it gives itself (a user's own trace has one), or the option's."""
    return str(told.values[group].get("name", told.choices[group]))


def provenance_rows(told: Told, plant: Plant, trace_quality: pa.Table) -> pa.Table:
    """Rows of `provenance`: what a cell rests on, who measured it and when."""
    sources = {(row["source"], row["as_of"]) for row in plant.constants.to_pylist()}
    rows = [("hardware", _name(told, "hardware"), source, as_of, _who(source)) for source, as_of in sorted(sources)]
    rows.append(("step_times", _name(told, "hardware"), plant.source, "this run", "us"))
    path = trace_quality["path"][0].as_py()
    rows.append(("trace", _name(told, "trace"), path, "this run", "us" if path == GENERATED else "community"))
    rows.append(("code", "pipeline", told.code, "this run", "us"))
    rows += [("software", name, version(name), "this run", "community") for name in SOFTWARE]
    rows.append(("software", "python", platform.python_version(), "this run", "community"))
    names = ("input", "name", "value", "as_of", "measured_by")
    return from_rows(PROVENANCE, [{"cell_id": told.cell_id, **dict(zip(names, row, strict=True))} for row in rows])


def _who(source: str) -> str:
    """Who stands behind a source, as far as its text says."""
    if "arXiv" in source:
        return "paper"
    return "us" if source.startswith(("measured here", "this run")) else "vendor"
