"""Fit the chat generator to half of a trace's sessions, and say how well it does on the others."""

import csv
from datetime import UTC, datetime

import _inputs

from pipeline import tables
from pipeline.job import INDENT, Job, run
from pipeline.spec import build
from pipeline.trace.base import TraceSource
from pipeline.trace.fit import fit_report


def work(job: Job) -> None:
    source = build(job.config["trace"], "trace", TraceSource)
    trace = source.jittered(_inputs.trace(job.only("trace")), job.config["seed"])
    rows, option = fit_report(trace, job.config["seed"], datetime.now(UTC).date().isoformat())
    with tables.replacing(job.out / "goodness.csv") as partial, partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    with tables.replacing(job.out / "fitted.yaml") as partial:
        partial.write_text(option, encoding="utf-8")
    told = [_line("measure", "statistic", "other half", "generated", "difference")]
    for row in rows:
        numbers = (_shown(row[name]) for name in ("trace", "generated", "difference"))
        told.append(_line(row["measure"], row["statistic"], *numbers))
    job.say(f"\n{INDENT}  ".join(["", *told]))
    job.say(f"the fitted option: {job.out / 'fitted.yaml'}; as conf/trace/NAME.yaml it is trace=NAME")


def _line(measure: str, statistic: str, *numbers: str) -> str:
    return f"{measure:20}{statistic:38}" + "".join(f"{number:>12}" for number in numbers)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    run(work)
