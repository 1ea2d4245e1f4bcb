"""Find the simulated capacity of a reference cell: the highest rate at which it meets its SLO often enough."""

import json

import _inputs

from pipeline import tables
from pipeline.cell import Cell
from pipeline.job import Job, run
from pipeline.runs import scenario_of
from pipeline.serving.capacity import capacity_per_s


def work(job: Job) -> None:
    cell = Cell.of(job.config["cell"])
    plant = _inputs.plant(job.only("calibrate"), job.only("train"))
    trace = cell.trace.jittered(_inputs.trace(job.only("trace")), cell.seed)
    found_per_s = capacity_per_s(scenario_of(cell, trace, plant))
    with tables.replacing(job.out / "capacity.json") as partial:
        partial.write_text(json.dumps({"capacity_per_s": found_per_s}))
    job.say(f"{found_per_s:.3g} requests/s")


if __name__ == "__main__":
    run(work)
