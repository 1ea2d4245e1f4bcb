"""Find the simulated capacity of a reference cell: its throughput when all traffic is there at once."""

import json

import _inputs

from pipeline import tables
from pipeline.cell import Cell
from pipeline.job import Job, run
from pipeline.runs import scenario_of
from pipeline.serving.simulate import saturation


def work(job: Job) -> None:
    cell = Cell.of(job.config["cell"])
    plant = _inputs.plant(job.only("calibrate"), job.only("train"))
    capacity_per_s = saturation(scenario_of(cell, _inputs.trace(job.only("trace")), plant))
    with tables.replacing(job.out / "capacity.json") as partial:
        partial.write_text(json.dumps({"capacity_per_s": capacity_per_s}))
    job.say(f"{capacity_per_s:.3g} requests/s")


if __name__ == "__main__":
    run(work)
