from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from test_warehouse_factory import (
    break_even,
    cell,
    page_of,
    published,
    quality,
    study_of,
    two_stage_study,
    with_met,
)

from pipeline.page import Page
from pipeline.warehouse.report import write_report

HOSTILE = "<script>alert('x')</script><img src=https://evil.example/a.png>"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("w"), two_stage_study())


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
    assert page.count("<h3>arXiv:") == 3
    assert "<summary>Cannot be tested by this study (" in page
    assert claim_columns(page) == [6, 5, 5, 5]  # held against ours: the first paper's alone
    assert "Provenance: where every input comes from: none." in page
    assert len(charts_of(page)) == 4
    assert page.count('class="chart"') == 4


def test_loading_and_computing_are_drawn_with_their_crossing(tmp_path: Path) -> None:
    ends = {"load_from_tokens": 512, "load_to_tokens": 1024}
    rows = [
        break_even(tier, tokens, tokens * factor * shared, tokens * 2e-3, sharer_count=shared, **ends)
        for tier, factor in (("dram", 1e-3), ("ssd", 3e-3))
        for shared in (1, 4, 8)
        for tokens in (256, 512, 1024)
    ]
    study = study_of(with_met(cell("c"), 60), break_even=rows)
    page = page_of(tmp_path, published(tmp_path, study))
    assert "<h2>Figure 3: load a prefix or recompute it</h2>\n<h3>h100_sxm m8b</h3>" in page
    verdict = "load from 512 tokens on"
    assert f"<li>DRAM: {verdict}; with 8 loads at once {verdict}</li>" in page
    one, most = charts_of(page)[-2:]
    times = {
        (chart_number, what): [v["time_s"] for v in values_of(chart) if v["what"] == what]
        for chart_number, chart in enumerate((one, most))
        for what in ("compute", "load from dram", "load from ssd")
    }
    assert times[0, "load from ssd"] == pytest.approx([0.768, 1.536, 3.072])
    assert times[1, "load from dram"] == pytest.approx([2.048, 4.096, 8.192])
    assert times[0, "compute"] == times[1, "compute"] == pytest.approx([0.512, 1.024, 2.048])
    assert [(v["what"], v["prefix_tokens"]) for v in values_of(one) if v["is_crossing"]] == [
        ("load from dram", 512),
        ("load from ssd", 512),
    ]
    svg = vl_convert.vegalite_to_svg(one | {"width": 340})
    assert len(re.findall('aria-roledescription="line mark"', svg)) == 3
    assert len(re.findall('aria-roledescription="point"', svg)) == 2


def claim_columns(page: str) -> list[int]:
    """Columns of each table of claims."""
    section = page[page.index("<h2>Published claims") : page.index("<h2>Numbers")]
    return [head.count("<th ") for head in re.findall(r"<thead>.*?</thead>", section)]


def test_figures_draw_a_point_and_an_interval_per_configuration(tmp_path: Path, warehouse: Path) -> None:
    goodput = charts_of(page_of(tmp_path, warehouse))[0]
    assert {(v["tiers"], v["eviction"], round(v["goodput_per_s"], 9)) for v in values_of(goodput)} == {
        (tiers, eviction, value) for tiers, value in (("small", 6.1), ("large", 9.1)) for eviction in ("lru", "lfu")
    }
    assert goodput["layer"][0]["encoding"]["y"]["sort"] == ["small", "large"]  # by size
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


def test_the_page_is_written_whole_or_not_at_all(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = page_of(tmp_path, warehouse)
    monkeypatch.setattr(Page, "html", lambda _: "\ud800")  # cannot be encoded: fails while it is written
    with pytest.raises(UnicodeEncodeError):
        write_report(warehouse, "default", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
