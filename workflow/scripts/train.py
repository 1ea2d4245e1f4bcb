"""Stage train: write the compiled look-up of step times and how accurate it is."""

from pipeline import tables
from pipeline.job import Job, run
from pipeline.model import Model
from pipeline.predictor.base import Predictor
from pipeline.schema import PREDICTOR_ACCURACY
from pipeline.spec import build
from pipeline.values import EngineLimits


def work(job: Job) -> None:
    predictor = build(job.config["predictor"], "predictor", Predictor)
    model = build(job.config["model"], "model", Model)
    engine = build(job.config["engine"], "engine", EngineLimits)
    samples = tables.read(job.only("calibrate") / "step_samples.parquet")
    trained = predictor.train(samples, model, engine, job.config["seed"])
    tables.write_arrays(job.out / "step_table.npz", trained.to_arrays())
    tables.write(job.out, PREDICTOR_ACCURACY, trained.accuracy)


if __name__ == "__main__":
    run(work)
