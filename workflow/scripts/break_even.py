"""Stage place: write from which prefix length on each tier beats computing again, once per engine setup."""

from pipeline import tables
from pipeline.hardware.base import links_of
from pipeline.job import Job, run
from pipeline.placement.break_even import Setup, break_even_rows
from pipeline.predictor.prefill_time import prefix_times
from pipeline.predictor.step_table import from_arrays
from pipeline.schema import BREAK_EVEN


def work(job: Job) -> None:
    setup = Setup(**job.config["setup"])
    links = links_of(tables.read(job.only("calibrate") / "link_calibration.parquet"))
    table = from_arrays(tables.read_arrays(job.only("train") / "step_table.npz"))
    prefixes, rest = setup.prefix_blocks * setup.block_tokens, setup.block_tokens
    recompute = {
        running: prefix_times(table, prefixes, rest, setup.max_batched_tokens - running, running, setup.context_tokens)
        for running in setup.batches
    }
    named = {"setup_id": job.out.name, **job.config["names"]}
    named |= {name: getattr(setup, name) for name in ("tensor_parallel", "max_batched_tokens", "block_tokens")}
    rows = [named | row for row in break_even_rows(links, setup, recompute)]
    tables.write(job.out, BREAK_EVEN, tables.from_rows(BREAK_EVEN, rows))


if __name__ == "__main__":
    run(work)
