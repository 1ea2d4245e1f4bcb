"""Write the page of a study: the recommendation first, then two figures, claims and where every number comes from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from pipeline.page import Page
from pipeline.spec import InputError
from pipeline.tables import replacing
from pipeline.warehouse import words
from pipeline.warehouse.ask import fetch, opened
from pipeline.warehouse.figures import GOODPUT, TTFT, break_even_chart, intervals_chart
from pipeline.warehouse.statements import grain_of, select_of
from pipeline.warehouse.summary import STAGES, claims_sentence, data_sentence, evidence_sentences

Rows = list[dict[str, Any]]
REPLAYED = ("predictor_comparison", "fidelity")
TABLES = ("alternatives", "load_verdict", "served_tier", "frontier", "prices", "predictor", "traces", "provenance")


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
    page = Page(f"kvplan: study {study}")
    wanted = ("answers", "placement", "routing", "break_even", "claims", "fidelity_cases", *REPLAYED, *TABLES)
    rows = {name: _rows(con, name, study) for name in wanted}
    if rows["fidelity_cases"]:
        page.heading("Held against real runs")
        page.items([f"{row['case']}: {words.fidelity(row)}" for row in rows["fidelity_cases"]])
        for name in REPLAYED:
            page.table(grain_of(f"report_{name}"), rows[name], is_open=True)
    page.heading("Recommendation")
    grounds, doubt = _grounds(con, study, about[0]) if rows["answers"] else ("No simulations in this study.", "")
    if doubt:
        page.paragraph(f"{doubt}.", "loud")
    _answers(page, rows["answers"])
    page.heading("Evidence")
    page.paragraph(grounds)
    names = {row["workload_id"]: words.workload(row, rows["answers"]) for row in rows["answers"]}
    page.heading("Figure 1: tiers and eviction policies")
    _figure(page, rows["placement"], names, "tiers", "eviction", "No simulations of placement in this study.")
    page.heading("Figure 2: routers")
    _figure(page, rows["routing"], names, "cluster", "routing", "No simulations of routing in this study.")
    _loading(page, rows["load_verdict"], rows["break_even"])
    page.heading("Published claims")
    _claims(page, rows["claims"])
    page.heading("Numbers")
    for name in ("placement", "routing", *TABLES):
        page.table(grain_of(f"report_{name}"), [_without(row, "workload_id", "setup_id") for row in rows[name]])
    return page.html()


def _grounds(con: duckdb.DuckDBPyConnection, study: str, slo: words.Row) -> tuple[str, str]:
    head, steps, doubt = evidence_sentences(con, study)
    limits = f"TTFT at most {slo['ttft_ms']:g} ms and TPOT at most {slo['tpot_ms']:g} ms"
    text = (
        f"{head}. Judged by SLO {slo['slo']}: {limits}. "
        "Intervals are 95 % across seeds, cut at what is possible; they say nothing of what seeds do not vary. "
        "Differences are paired by seed; their intervals hold together over all pairs of tiers of a workload, and over "
        "all pairs of policies or routers on the same tiers. Hits are by tokens, their bounds "
        f"what no reuse and an infinite cache would give. {steps} "
        f"{data_sentence(con, study)} {claims_sentence(con, study)}"
    )
    return text, doubt


def _answers(page: Page, rows: Rows) -> None:
    if not rows:
        page.paragraph("No simulations in this study.", "loud")
    for row in rows:
        page.heading(f"{STAGES[row['stage']]}: {words.workload(row, rows)}", 3)
        for weakness in filter(None, (words.doubt(row), *words.caveats(row))):
            page.paragraph(weakness, "loud")
        page.items([*words.findings(row), _evidence(row)])


def _evidence(row: words.Row) -> str:
    seeds = words.count(row["seed_count"], "seed")
    return (
        f"evidence: {row['conclusion']}, from {words.count(row['cell_count'], 'simulation')}, {seeds}; "
        f"step times {row['calibration_source']}, {words.percent(row['extrapolated_time_ratio'])} outside the "
        f"profiled range; {row['mean_running_count']:.3g} requests running on average"
    )


def _claims(page: Page, rows: Rows) -> None:
    for paper, found in itertools.groupby(rows, key=lambda row: row["paper"]):
        listed = list(found)
        page.heading(str(paper), 3)
        held = [_without(row, "paper", "is_tested") for row in listed if row["is_tested"]]
        page.table("Held against ours", held, is_open=True)
        untested = [_without(row, "paper", "is_tested", "ours") for row in listed if not row["is_tested"]]
        page.table("Cannot be tested by this study", untested)


def _figure(page: Page, rows: Rows, names: Mapping[str, str], group: str, option: str, missing: str) -> None:
    if not rows:
        page.paragraph(missing, "loud")
    for workload_id, found in itertools.groupby(rows, key=lambda row: row["workload_id"]):
        part, name = list(found), names[workload_id]
        page.heading(name, 3)
        page.figure(
            [
                intervals_chart(part, measure, group, option, f"{name}: {measure.title} by {group} and {option}")
                for measure in (GOODPUT, TTFT)
            ]
        )


def _loading(page: Page, verdicts: Rows, times: Rows) -> None:
    """From which length on each tier is worth loading from, and both times for one load and for the most at once."""
    page.heading("Figure 3: load a prefix or recompute it")
    if not verdicts:
        page.paragraph("No times to load and to compute in this study.", "loud")
    for setup_id, found in itertools.groupby(verdicts, key=lambda row: row["setup_id"]):
        listed = list(found)
        name = words.setup(listed[0], verdicts)
        page.heading(name, 3)
        page.items(words.load_verdicts(listed))
        own = [row for row in times if row["setup_id"] == setup_id]
        counts = sorted({row["sharer_count"] for row in own})
        page.figure(
            [
                break_even_chart(
                    [row for row in own if row["sharer_count"] == count],
                    f"{name}: time to load or compute a prefix, {words.count(count, 'load')} at once",
                )
                for count in dict.fromkeys((counts[0], counts[-1]))
            ]
        )


def _rows(con: duckdb.DuckDBPyConnection, name: str, study: str) -> Rows:
    return fetch(con, select_of(f"report_{name}"), {"study": study})


def _without(row: words.Row, *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
