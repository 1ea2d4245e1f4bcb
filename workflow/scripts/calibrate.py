"""Stage calibrate: write step samples, constants and links of one hardware and model."""

from pipeline import tables
from pipeline.hardware.base import calibrate
from pipeline.hardware.spec import Hardware
from pipeline.job import Job, run
from pipeline.model import Model
from pipeline.schema import CONSTANTS, LINK_CALIBRATION, STEP_SAMPLES
from pipeline.spec import build
from pipeline.values import EngineLimits


def work(job: Job) -> None:
    hardware = build(job.config["hardware"], "hardware", Hardware)
    model = build(job.config["model"], "model", Model)
    engine = build(job.config["engine"], "engine", EngineLimits)
    found = calibrate(hardware, model, engine)
    tables.write(job.out, STEP_SAMPLES, found.step_samples)
    tables.write(job.out, CONSTANTS, found.constants)
    tables.write(job.out, LINK_CALIBRATION, found.link_calibration)
    job.say(f"{found.step_samples.num_rows} step samples, source {found.source}")


if __name__ == "__main__":
    run(work)
