"""Read or generate one trace, every row accounted for."""

from collections.abc import Iterator
from pathlib import Path

from pipeline import tables
from pipeline.job import Job, run
from pipeline.schema import TRACE_QUALITY
from pipeline.spec import build
from pipeline.trace.base import TraceSource
from pipeline.trace.lines import open_lines
from pipeline.trace.shaping import check_times
from pipeline.trace.storage import to_arrays


def work(job: Job) -> None:
    source = build(job.config["trace"], "trace", TraceSource)

    def read(path: Path) -> Iterator[bytes]:
        return job.watched(open_lines(path), "lines")

    loaded = source.load(job.config["seed"], job.config["max_context_tokens"], read)
    check_times(loaded.trace)
    tables.write_arrays(job.out / "trace.npz", to_arrays(loaded.trace))
    tables.write(job.out, TRACE_QUALITY, loaded.quality)
    if not loaded.trace.has_prefixes:
        job.say("it carries no prefixes: no block can be found again, so tiers and policies cannot matter")
    job.say("rows: " + ", ".join(f"{row['row_count']} {row['reason']}" for row in loaded.quality.to_pylist()))


if __name__ == "__main__":
    run(work)
