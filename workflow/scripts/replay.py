"""Stage replay: simulate one measured run and write how far the simulation and its predicted kernels are from it."""

from pathlib import Path

from pipeline import tables
from pipeline.fidelity.case import read_case
from pipeline.fidelity.errors import errors, held_out_errors, mean_absolute_error_ratio
from pipeline.fidelity.replay import replay
from pipeline.fidelity.runs import Runs
from pipeline.job import Job, run
from pipeline.predictor.base import Predictor
from pipeline.schema import FIDELITY, PREDICTOR_ACCURACY
from pipeline.spec import build


def work(job: Job) -> None:
    runs = build(job.config["runs"], "fidelity", Runs)
    predictor = build(job.config["predictor"], "predictor", Predictor)
    case, seed = read_case(Path(job.config["folder"])), job.config["seed"]
    found = replay(case, runs, predictor, seed)
    table = errors(case, found.times, predictor.name, found.derived)
    tables.write(job.out, FIDELITY, table)
    tables.write(job.out, PREDICTOR_ACCURACY, held_out_errors(case, predictor, seed))
    error = f"mean absolute error {mean_absolute_error_ratio(table):.2%} over {table.num_rows} metrics"
    job.say(f"{error}; source: {table['source'][0].as_py()}")


if __name__ == "__main__":
    run(work)
