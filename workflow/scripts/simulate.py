"""Stages place and route: simulate every cell of this job and write its tables."""

import json
from collections.abc import Mapping
from typing import Any

import _inputs
import pyarrow as pa

from pipeline import tables
from pipeline.cell import Cell
from pipeline.job import Job, run
from pipeline.predictor.tau import Taus
from pipeline.runs import Told, cell_id_of, cells_row, provenance_rows, rate_per_s, scenario_of
from pipeline.schema import SIMULATED, TABLES
from pipeline.serving import recorder
from pipeline.serving.simulate import simulate
from pipeline.trace.shaping import loaded


def work(job: Job) -> None:
    written = SIMULATED if job.stage == "place" else (*SIMULATED, "routing_decisions")
    parts: dict[str, list[pa.Table]] = {name: [] for name in written}
    for item in job.progress(job.config["cells"], "simulations"):
        made = simulate_cell(job, item)
        for name in written:
            parts[name].append(made[name])
    for name, found in parts.items():
        tables.write(job.out, TABLES[name], pa.concat_tables(found))


def simulate_cell(job: Job, item: Mapping[str, Any]) -> dict[str, pa.Table]:
    folders = {stage: job.folder(stage, key) for stage, key in item["upstream"].items()}
    cell = Cell.of(item["values"])
    plant = _inputs.plant(folders["calibrate"], folders["train"])
    trace = cell.trace.jittered(_inputs.trace(folders["trace"]), cell.seed)
    capacity_per_s = None
    if "capacity" in folders:
        capacity_per_s = json.loads((folders["capacity"] / "capacity.json").read_text())["capacity_per_s"]
    offered_per_s = rate_per_s(cell, capacity_per_s, trace)
    scenario = scenario_of(cell, loaded(trace, offered_per_s, cell.load.scale_by if cell.load else "time"), plant)
    output = simulate(scenario)
    taus = Taus(scenario.prefill_s_per_token, scenario.decode_s_per_token)
    told = Told(
        cell_id=cell_id_of(item, job.code),
        stage=job.stage,
        study=job.config["study"],
        choices=item["choices"],
        axes=item["axes"],
        values=item["values"],
        code=job.code,
        capacity_per_s=capacity_per_s,
        offered_per_s=offered_per_s,
    )
    return {
        "cells": cells_row(told, scenario.trace, plant, taus, recorder.figures(output)),
        "provenance": provenance_rows(told, plant, _inputs.trace_quality(folders["trace"])),
        **recorder.tables(output, told.cell_id),
    }


if __name__ == "__main__":
    run(work)
