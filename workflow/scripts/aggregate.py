"""Stage aggregate: publish the study into the warehouse, say the answer in words, write the page."""

from pathlib import Path

from rich.console import Console

from pipeline.job import Job, run
from pipeline.schema import TABLES
from pipeline.spec import build
from pipeline.tables import replacing
from pipeline.values import Price, Slo
from pipeline.warehouse.build import publish
from pipeline.warehouse.claims import Claims
from pipeline.warehouse.report import write_report
from pipeline.warehouse.reporting import Reporting
from pipeline.warehouse.summary import summarise


def work(job: Job) -> None:
    study, given = job.config["study"], job.config["report"]
    warehouse = job.out / "warehouse.duckdb"
    publish(warehouse, study, parquet_files(job), reporting(given))
    summary = summarise(warehouse, study)
    with replacing(job.out / "summary.txt") as partial:
        partial.write_text(summary.plain + "\n")
    write_report(warehouse, study, job.out / "report.html")
    Console(stderr=True).print(summary)


def reporting(given: dict[str, object]) -> Reporting:
    prices = tuple(build(price, "price", Price) for price in given["prices"])  # type: ignore[attr-defined]
    return Reporting(
        slo=build(given["slo"], "report_slo", Slo),
        price=build(given["price"], "price", Price),
        prices=prices,
        claims=build(given["claims"], "claims", Claims),
        **{name: str(value) for name, value in given.items() if name.startswith("reference_")},
    )


def parquet_files(job: Job) -> dict[str, list[Path]]:
    """Parquet files of all jobs upstream, by table."""
    files: dict[str, list[Path]] = {}
    for stage, keys in job.upstream.items():
        for path in sorted(file for key in keys for file in job.folder(stage, key).glob("*.parquet")):
            if path.stem in TABLES:
                files.setdefault(path.stem, []).append(path)
    return files


if __name__ == "__main__":
    run(work)
