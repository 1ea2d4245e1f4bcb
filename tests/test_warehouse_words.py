from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from rich.console import Console
from test_warehouse_factory import cell, published, quality, request, study_of, two_stage_study, with_met

from pipeline.spec import InputError
from pipeline.warehouse import words
from pipeline.warehouse.ask import MOST_ROWS, ask
from pipeline.warehouse.page import Page
from pipeline.warehouse.report import write_report
from pipeline.warehouse.summary import MOST_LINES, WIDTH, summarise

HOSTILE = "<script>alert('x')</script><img src=https://evil.example/a.png>"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("w"), two_stage_study())


def text_of(warehouse: Path, study: str = "default") -> str:
    return " ".join(summarise(warehouse, study).plain.split())


def test_the_summary_names_choice_evidence_and_bounds(warehouse: Path) -> None:
    text = text_of(warehouse)
    assert "Study default: 18 simulations, 3 seeds, h100_sxm, m8b" in text
    assert "tiers large (40 GB HBM + 100 GB DRAM), policy lru; goodput 9.1/s [8.85, 9.35], 91 % in SLO" in text
    assert "no policy beats lru: 1 equal within 2 %; cheaper tiers worse; hits" in text
    assert "hits 0 % (bounds 0 to 60 %)" in text
    assert "router cost_model; goodput 8.1/s [7.85, 8.35], 81 % in SLO; cost_model beats round_robin by 58.8 %" in text
    assert "up to 10 % outside the profiled range. Data: synthetic chat." in text
    assert "6 hold, 4 differ" in text
    assert "NOT CALIBRATED" not in text


def test_a_study_of_replays_says_how_far_they_are(tmp_path: Path) -> None:
    metric = {"case": "gpu_8b", "source": "them", "measured": 100.0}
    rows = [
        metric | {"metric": "TTFT mean", "simulated": 97.0, "error_ratio": -0.03, "peer_error_ratio": 0.05},
        metric | {"metric": "E2E mean", "simulated": 101.0, "error_ratio": 0.01, "peer_error_ratio": -0.01},
    ]
    warehouse = published(tmp_path, {"fidelity": rows})
    expected = "mean absolute error 2.00 % over 2 metrics (the best peer: 3.00 %); worst TTFT mean, -3.00 %"
    assert text_of(warehouse) == f"Study default: 1 real run replayed - gpu_8b: {expected}."
    write_report(warehouse, "default", tmp_path / "report.html")
    assert f"<li>gpu_8b: {expected}</li>" in (tmp_path / "report.html").read_text()


def test_the_summary_says_loudly_what_is_weak(tmp_path: Path) -> None:
    parts = [
        with_met(cell(name, eviction=name, is_calibrated=name == "lru", calibration_source="datasheet"), met)
        for name, met in (("lru", 100), ("lfu", 99))
    ]
    rows = study_of(*parts, trace_quality=[quality("chat", "read", 5), quality("chat", "kept", 5)])
    text = text_of(published(tmp_path, rows))
    assert "NOT CALIBRATED" in text
    assert "- chat: not enough evidence: tiers small" in text
    assert "no policy beats lru beyond its interval" in text
    assert "one seed: no interval" in text
    assert "load too light to tell options apart" in text
    assert "Data: real traces chat." in text
    assert "Where requests go No such simulations in this study." in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"infinite_cache_hit_ratio": 0.0}, "no block is used twice, or the trace has no prefixes"),
        ({"is_settled": False}, "warm-up shorter than the sessions"),
    ],
)
def test_the_summary_says_what_makes_an_answer_void(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    for is_void in (True, False):
        rows = study_of(*(with_met(cell(f"{seed}", seed=seed, **(change if is_void else {})), 90) for seed in (0, 1)))
        text = text_of(published(tmp_path / str(is_void), rows))
        assert (said in text) == is_void


def many_workloads(count: int) -> dict[str, Any]:
    parts = []
    for i in range(count):
        for stage in ("place", "route"):
            name = f"a_trace_with_quite_a_long_name_{i}"
            axes = json.dumps({"trace": name, "seed": 0})
            parts.append(with_met(cell(f"{stage}{i}", stage=stage, trace=name, axes=axes), 60, 70))
    return study_of(*parts)


@pytest.mark.parametrize("count", [1, 3, 12])
def test_the_summary_is_short_and_narrow_and_says_what_it_leaves_out(tmp_path: Path, count: int) -> None:
    summary = summarise(published(tmp_path, many_workloads(count)), "default").plain
    lines = summary.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    hidden = sum(int(n) for n in re.findall(r"and (\d+) more workload", summary))
    assert len(re.findall(r"^- a_trace", summary, re.M)) + hidden == 2 * count


def test_the_summary_is_plain_when_piped_and_markup_is_inert(tmp_path: Path) -> None:
    rows = study_of(with_met(cell("c", trace="[bold red]x[/]"), 60))
    out = io.StringIO()
    Console(file=out).print(summarise(published(tmp_path, rows), "default"))
    assert "\x1b" not in out.getvalue()
    assert "[bold red]x[/]" in out.getvalue()


def test_an_unknown_study_or_no_warehouse_is_explained(tmp_path: Path, warehouse: Path) -> None:
    with pytest.raises(InputError, match="no simulations of study 'nope'"):
        summarise(warehouse, "nope")
    with pytest.raises(InputError, match="no study 'nope'"):
        write_report(warehouse, "nope", tmp_path / "report.html")
    with pytest.raises(InputError, match="there is no warehouse; run a study first"):
        summarise(tmp_path / "none.duckdb", "default")
    assert list(tmp_path.iterdir()) == []


def page_of(folder: Path, warehouse: Path, study: str = "default") -> str:
    write_report(warehouse, study, folder / "report.html")
    return (folder / "report.html").read_text()


def charts_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)
    return json.loads(found.group(1)) if found else []


def values_of(chart: dict[str, Any]) -> list[dict[str, Any]]:
    return next(iter(chart["datasets"].values()))


def without_code(page: str) -> str:
    return re.sub(r'<script type="module">.*?</script>', "<script></script>", page, flags=re.S)


def test_the_page_holds_recommendation_figures_claims_and_provenance(tmp_path: Path, warehouse: Path) -> None:
    page = page_of(tmp_path, warehouse)
    order = [
        page.index(f"<h2>{title}")
        for title in ("Recommendation", "Evidence", "Figure 1", "Figure 2", "Published claims", "Num")
    ]
    assert order == sorted(order)
    assert "tiers large (40 GB HBM + 100 GB DRAM), policy lru" in page
    assert "A12.cost" in page
    assert "Provenance: where every input comes from: none." in page
    assert len(charts_of(page)) == 4
    assert page.count('class="chart"') == 4


def test_figures_draw_a_point_and_an_interval_per_configuration(tmp_path: Path, warehouse: Path) -> None:
    goodput = charts_of(page_of(tmp_path, warehouse))[0]
    assert {(v["tiers"], v["eviction"], round(v["goodput_per_s"], 9)) for v in values_of(goodput)} == {
        (tiers, eviction, value) for tiers, value in (("small", 6.1), ("large", 9.1)) for eviction in ("lru", "lfu")
    }
    svg = vl_convert.vegalite_to_svg(goodput | {"width": 340})
    assert len(re.findall('aria-roledescription="point"', svg)) == 4
    assert len(re.findall('aria-roledescription="rule mark"', svg)) == 4


def test_nothing_can_leave_the_page(tmp_path: Path, warehouse: Path) -> None:
    page = page_of(tmp_path, warehouse)
    assert "default-src 'none'" in page
    markup = without_code(page)
    assert len(page) - len(markup) > 500_000
    assert page.count("<script") == 2
    assert not re.search(
        r"""(src|href|action|poster|data)\s*=\s*["']?(?!data:)[^"'\s>]""", re.sub(r"<td.*?</td>", "", markup)
    )
    assert not re.search(r"url\(|@import", markup)
    assert len(page) < 1_500_000


def test_hostile_values_are_shown_not_run(tmp_path: Path) -> None:
    both = [
        with_met(
            cell(stage, stage=stage, **dict.fromkeys(("trace", "tiers", "eviction", "routing", "hardware"), HOSTILE)),
            60,
        )
        for stage in ("place", "route")
    ]
    rows = study_of(*both, trace_quality=[quality(HOSTILE, "kept", 1)])
    page = without_code(page_of(tmp_path, published(tmp_path, rows, study=HOSTILE), HOSTILE))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert" in page
    assert values_of(charts_of(page)[0])[0]["tiers"] == HOSTILE
    assert page.count("<script") == 2


def test_a_missing_stage_is_named(tmp_path: Path) -> None:
    page = page_of(tmp_path, published(tmp_path, study_of(with_met(cell("c"), 60))))
    assert "No simulations of routing in this study." in page
    assert len(charts_of(page)) == 2
    empty = published(tmp_path / "2", {"cells": []})
    page = page_of(tmp_path, empty)
    assert "No simulations in this study." in page
    assert charts_of(page) == []


def test_a_request_that_is_never_served_breaks_no_page(tmp_path: Path) -> None:
    none = dict.fromkeys(("queue_ms", "onboard_ms", "ttft_ms", "tpot_ms", "max_itl_ms", "e2el_ms"))
    rows = [request("c", 0, status="rejected:no_room", **none)]
    warehouse = published(tmp_path, study_of((cell("c", measured_s=0.0, makespan_s=0.0), rows)))
    assert "goodput unknown, 0 % in SLO" in text_of(warehouse)
    assert "no_room" not in page_of(tmp_path, warehouse)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "0 %"), (0.02, "2 %"), (0.0123, "1.2 %"), (0.314, "31 %"), (1.0, "100 %"), (None, "unknown")],
)
def test_percent(ratio: float | None, text: str) -> None:
    assert words.percent(ratio) == text


@pytest.mark.parametrize(
    ("verdict", "tiers", "cheaper", "text"),
    [
        ("shown", 3, 1, "cheaper tiers worse, dearer tiers no better"),
        ("shown", 2, 1, "cheaper tiers worse"),
        ("shown", 2, 0, "dearer tiers no better"),
        ("not shown", 2, 0, "tier sizes not told apart"),
        ("one size", 1, 0, "one tier size, none to compare"),
    ],
)
def test_what_is_said_of_tiers(verdict: str, tiers: int, cheaper: int, text: str) -> None:
    row = {"tiers_verdict": verdict, "tiers_count": tiers, "cheaper_count": cheaper}
    assert words.tiers_finding(row) == text


def test_bytes() -> None:
    assert [words.byte_text(b) for b in (4e10, 2e12, float("inf"))] == ["40 GB", "2 TB", "unlimited"]


def answer(warehouse: Path, query: str) -> str:
    out = io.StringIO()
    ask(warehouse, query, Console(file=out))
    return out.getvalue()


def test_ask_prints_a_table(warehouse: Path) -> None:
    text = answer(
        warehouse, 'select tiers, goodput_per_s as "[red]", null as n from placement_ranking order by 1 limit 1'
    )
    assert all(shown in text for shown in ("tiers", "[red]", "large", "9.1", "NULL"))
    assert f"the first {MOST_ROWS} rows" in answer(warehouse, "select request_id from requests")


@pytest.mark.parametrize("query", ["selec 1", "from nothing", "drop table cells", "", "-- no"])
def test_ask_explains_a_refused_query_in_one_line(warehouse: Path, query: str) -> None:
    with pytest.raises(InputError) as error:
        answer(warehouse, query)
    assert "\n" not in str(error.value)


def test_the_page_is_written_whole_or_not_at_all(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = page_of(tmp_path, warehouse)
    monkeypatch.setattr(Page, "html", lambda _: "\ud800")  # cannot be encoded: fails while it is written
    with pytest.raises(UnicodeEncodeError):
        write_report(warehouse, "default", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
