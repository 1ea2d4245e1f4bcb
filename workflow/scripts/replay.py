"""Stage replay: simulate one measured run and write how far the simulation is from it."""

from pathlib import Path

from pipeline import tables
from pipeline.fidelity.case import read_case
from pipeline.fidelity.errors import errors, mean_absolute_error_ratio
from pipeline.fidelity.replay import replay
from pipeline.fidelity.runs import Runs
from pipeline.job import Job, run
from pipeline.schema import FIDELITY
from pipeline.spec import build


def work(job: Job) -> None:
    runs = build(job.config["runs"], "fidelity", Runs)
    case = read_case(Path(job.config["folder"]))
    found = replay(case, runs, job.config["seed"])
    table = errors(case, found.times, found.derived)
    tables.write(job.out, FIDELITY, table)
    job.say(f"mean absolute error {mean_absolute_error_ratio(table):.2%} over {table.num_rows} metrics")


if __name__ == "__main__":
    run(work)
