"""From a cell to its simulation, and from that to rows of `cells` and `provenance`."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.cell import Cell
from pipeline.hardware.base import LinkConstants, links_of
from pipeline.placement.capacity import capacity_blocks
from pipeline.predictor.step_table import StepTable
from pipeline.predictor.tau import router_taus
from pipeline.provenance import digest
from pipeline.schema import CELLS, PROVENANCE
from pipeline.serving.scenario import Scenario
from pipeline.tables import from_rows
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.reuse import infinite_cache_hit_ratio

UNCALIBRATED = "datasheet"
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
        """Whether a measurement stands behind the step times."""
        return self.source != UNCALIBRATED


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
        capacity_blocks=capacity_blocks(
            cell.tiers, cell.engine, cell.model, cell.hardware.hbm_bytes.value, trace.block_tokens
        ).tolist(),
        eviction=cell.eviction,
        placement=cell.placement,
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
    )
