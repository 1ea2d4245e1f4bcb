"""Write the page of a study: the recommendation first, then two figures, claims and where every number comes from."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb

from pipeline.spec import InputError
from pipeline.tables import replacing
from pipeline.warehouse import words
from pipeline.warehouse.ask import fetch, opened
from pipeline.warehouse.figures import GOODPUT, TTFT, intervals_chart
from pipeline.warehouse.page import Page
from pipeline.warehouse.statements import grain_of, select_of
from pipeline.warehouse.summary import claims_sentence, data_sentence

Rows = list[dict[str, Any]]
TABLES = ("served_tier", "frontier", "prices", "predictor", "traces", "provenance")


def write_report(warehouse: Path, study: str, path: Path) -> None:
    """Write the page of `study` to `path`, whole or not at all.

    A stage or table without rows is named as missing. Raises InputError where warehouse or study is not there.
    """
    with opened(warehouse) as con:
        text = report_html(con, study)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def report_html(con: duckdb.DuckDBPyConnection, study: str) -> str:
    """HTML of the page of `study`, from an open warehouse."""
    about = fetch(con, "select * from report_slo where study = $study", {"study": study})
    if not about:
        raise InputError(f"the warehouse holds no study {study!r}")
    slo = about[0]
    page = Page(f"kvplan: study {study}")
    page.paragraph(
        f"Judged by SLO {slo['slo']}: TTFT at most {slo['ttft_ms']:g} ms and TPOT at most {slo['tpot_ms']:g} ms. "
        f"Intervals are 95 % across seeds. {data_sentence(con, study)} {claims_sentence(con, study)}"
    )
    rows = {name: _rows(con, name, study) for name in ("answers", "placement", "routing", "claims", *TABLES)}
    _answers(page, rows["answers"])
    page.heading("Figure 1: tiers and eviction policies")
    _figure(page, rows["placement"], "tiers", "eviction", "No simulations of placement in this study.")
    page.heading("Figure 2: routers")
    _figure(page, rows["routing"], "cluster", "routing", "No simulations of routing in this study.")
    page.heading("Published claims")
    page.table(grain_of("report_claims"), rows["claims"], is_open=True)
    page.heading("Numbers")
    for name in ("placement", "routing", *TABLES):
        page.table(grain_of(f"report_{name}"), [_without_ids(row) for row in rows[name]])
    return page.html()


def _answers(page: Page, rows: Rows) -> None:
    page.heading("Recommendation")
    if not rows:
        page.paragraph("No simulations in this study.", "loud")
    if any(not row["is_calibrated"] for row in rows):
        page.paragraph("NOT CALIBRATED: step times rest on datasheet figures; trust no absolute figure.", "loud")
    for row in rows:
        page.heading(words.workload(row), 3)
        findings = [words.choice(row), words.goodput(row), words.option_finding(row, row["equivalence_ratio"])]
        if row["stage"] == "place":
            findings += [words.tiers_finding(row), words.bounds(row)]
        page.items([*findings, _evidence(row)])
        for caveat in words.caveats(row):
            page.paragraph(caveat, "loud")


def _evidence(row: words.Row) -> str:
    enough = "evidence suffices" if row["is_shown"] else "not enough evidence"
    return (
        f"{enough}: {words.count(row['cell_count'], 'simulation')}, {words.count(row['seed_count'], 'seed')}; "
        f"step times {row['calibration_source']}, {words.percent(row['extrapolated_time_ratio'])} outside the "
        f"profiled range; {row['mean_running_count']:.3g} requests running on average"
    )


def _figure(page: Page, rows: Rows, group: str, option: str, missing: str) -> None:
    if not rows:
        page.paragraph(missing, "loud")
    for _, found in itertools.groupby(rows, key=lambda row: row["workload_id"]):
        part = list(found)
        first = part[0]
        name = ", ".join(str(first[key]) for key in ("trace", "hardware", "model", "setting") if first[key])
        page.heading(name, 3)
        page.figure(
            [
                intervals_chart(part, measure, group, option, f"{name}: {measure.title} by {group} and {option}")
                for measure in (GOODPUT, TTFT)
            ]
        )


def _rows(con: duckdb.DuckDBPyConnection, name: str, study: str) -> Rows:
    return fetch(con, select_of(f"report_{name}"), {"study": study})


def _without_ids(row: words.Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "workload_id"}
