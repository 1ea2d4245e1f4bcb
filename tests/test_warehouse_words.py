from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_warehouse_factory import (
    break_even,
    cell,
    page_of,
    published,
    quality,
    request,
    study_of,
    two_stage_study,
    usage,
    with_met,
)

from pipeline.spec import InputError
from pipeline.warehouse import words
from pipeline.warehouse.report import write_report
from pipeline.warehouse.summary import MOST_LINES, WIDTH, summarise


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("w"), two_stage_study())


def text_of(warehouse: Path, study: str = "default") -> str:
    return " ".join(summarise(warehouse, study).plain.split())


def test_the_summary_names_choice_evidence_and_bounds(warehouse: Path) -> None:
    text = text_of(warehouse)
    assert "Study default: 18 simulations, 3 seeds, h100_sxm, m8b" in text
    assert "tiers large (40 GB HBM + 100 GB DRAM), policy lru; goodput 9.1/s [8.85, 9.35], 91 % in SLO" in text
    assert "small worse (-33 %); lfu equal within 2 %; hits" in text
    assert "hits 0 % (bounds 0 to 60 %)" in text
    assert "router cost_model; goodput 8.1/s [7.85, 8.35], 81 % in SLO; +59 % [59, 59] over round_robin." in text
    assert "up to 10 % outside the profiled range. Data: synthetic chat." in text
    assert "6 hold, 1 differs" in text
    assert "NOT CALIBRATED" not in text


def test_the_summary_says_when_to_load(tmp_path: Path) -> None:
    rows = [
        break_even(tier, 256, 1.0, 2.0, sharer_count=shared, running_count=running, **ends)
        for tier in ("dram", "ssd")
        for shared, ends in ((1, {"load_from_tokens": 256, "load_to_tokens": 256}), (8, {}))
        for running in (0, 16)
    ]
    rows += [row | {"setup_id": "t", "engine": "wide"} for row in rows]
    warehouse = published(tmp_path, study_of((cell("c"), [request("c", 0)]), break_even=rows))
    never = "never load: recompute is faster at any length; needs 3.5 GB/s, has 7"
    assert (
        f"Load a prefix or recompute it (h100_sxm m8b, engine vllm) - DRAM: load from 256 tokens on; with 8 loads at "
        f"once {never}. - SSD: load from 256 tokens on; with 8 loads at once {never}. and 1 more setup: make sql "
        'Q="from load_verdict"'
    ) in text_of(warehouse)
    capacity = [usage("c", "hbm", 1e9), usage("c", "dram", 1e9), usage("c", "ssd", 0.0)]
    study = study_of((cell("c"), [request("c", 0)]), break_even=rows, tier_usage=capacity)
    text = text_of(published(tmp_path / "dram", study))
    assert "- DRAM: load from 256 tokens on" in text
    assert "- SSD: load" not in text  # the study has none


def test_a_study_of_replays_says_how_far_they_are(tmp_path: Path) -> None:
    metric = {"case": "gpu_8b", "predictor": "interpolation", "source": "them", "measured": 100.0}
    rows = [
        metric | {"metric": "TTFT mean", "simulated": 97.0, "error_ratio": -0.03, "peer_error_ratio": 0.05},
        metric | {"metric": "E2E mean", "simulated": 101.0, "error_ratio": 0.01, "peer_error_ratio": -0.01},
    ]
    warehouse = published(tmp_path, {"fidelity": rows})
    expected = "mean absolute error 2.00 % over 2 metrics (the best peer: 3.00 %); worst TTFT mean, -3.00 %"
    assert text_of(warehouse) == f"Study default: 1 real run replayed - gpu_8b: {expected}."
    write_report(warehouse, "default", tmp_path / "report.html")
    assert f"<li>gpu_8b: {expected}</li>" in (tmp_path / "report.html").read_text()


def test_a_replay_says_what_was_not_measured_with_it(tmp_path: Path) -> None:
    row = {"predictor": "interpolation", "metric": "TTFT mean", "measured": 1.0, "simulated": 1.0}
    row |= {"error_ratio": 0.0, "peer_error_ratio": None}
    terms = ["KV blocks (40000 assumed: not recorded)", "all-reduce (measured elsewhere)"]
    source = {"source": f"them; derived: {', '.join(terms)}"}
    rows = [row | source | {"case": f"case_{i:02d}"} for i in range(30)]
    summary = summarise(published(tmp_path, {"fidelity": rows}), "default").plain
    assert f"worst TTFT mean, 0.00 %; derived: {', '.join(terms)}. - case_01" in " ".join(summary.split())
    assert len(summary.splitlines()) <= MOST_LINES
    shown = len(re.findall(r"^- case_", summary, re.M))
    assert summary.endswith(f'  and {30 - shown} more runs: make sql Q="from fidelity"')


def test_the_summary_says_loudly_what_is_weak(tmp_path: Path) -> None:
    parts = [
        with_met(cell(name, eviction=name, hardware="a40", is_calibrated=False, calibration_source="datasheet"), met)
        for name, met in (("lru", 98), ("lfu", 97))
    ]
    rows = study_of(*parts, trace_quality=[quality("chat", "read", 5), quality("chat", "kept", 5)])
    text = text_of(published(tmp_path, rows))
    assert "NOT CALIBRATED: step times of a40 are datasheet, not measured; trust no absolute figure." in text
    assert "- chat: one seed, so no interval and no evidence of a difference: tiers small" in text
    assert "one tier size, none to compare; lfu not told apart (-1 %); hits" in text
    assert "one trace, whose arrivals are all that seeds shift" in text
    assert "Data: real traces chat." in text
    assert "Where requests go No such simulations in this study." in text


def test_step_times_scaled_from_other_hardware_are_not_called_calibrated(tmp_path: Path) -> None:
    config = json.dumps({"hardware": {"source": {"reference": {"name": "l40s"}}}})
    scaled = {"hardware": "a40", "is_calibrated": False, "calibration_source": "scaled", "config": config}
    rows = study_of(*(with_met(cell(n, **more), 60) for n, more in (("scaled", scaled), ("silicon", {}))))
    warehouse = published(tmp_path, rows)
    text = text_of(warehouse)
    assert "NOT CALIBRATED: step times of a40 are scaled from l40s, not measured; trust no absolute figure." in text
    assert "Step times: scaled from l40s, silicon_interpolated, up to" in text
    assert "NOT CALIBRATED: step times of a40 are scaled from l40s" in page_of(tmp_path, warehouse)


def policies(counts: dict[str, list[int]], **changes: Any) -> dict[str, Any]:
    return study_of(
        *(
            with_met(cell(f"{name}{seed}", eviction=name, seed=seed, **changes), met)
            for name, by_seed in counts.items()
            for seed, met in enumerate(by_seed)
        )
    )


@pytest.mark.parametrize(
    ("met", "change", "said"),
    [
        (60, {"infinite_cache_hit_ratio": 0.0, "has_prefixes": False}, "the trace has no prefixes, so tiers and"),
        (60, {"infinite_cache_hit_ratio": 0.0}, "no block of the trace is used twice, so tiers and"),
        (99, {}, "nothing can be told apart at this load (99 % or more in SLO under each)"),
        (0, {}, "nothing meets the SLO at this load"),
    ],
)
def test_what_makes_an_answer_void_is_said_in_its_place(
    tmp_path: Path, met: int, change: dict[str, Any], said: str
) -> None:
    text = text_of(published(tmp_path, policies({"lru": [met] * 2, "lfu": [met] * 2}, **change)))
    assert f"- chat: {said}" in text
    assert "goodput" in text
    assert not any(word in text for word in ("not enough evidence", "told apart (-", "equal", "no evidence", "none to"))


def test_an_unsettled_load_is_said_first(tmp_path: Path) -> None:
    text = text_of(published(tmp_path, policies({"lru": [60, 62], "lfu": [60, 62]}, is_settled=False)))
    assert "- chat: the load had not settled (warm-up shorter than the sessions): tiers small" in text
    assert "; lfu equal within 2 %; hits" in text


def test_policies_that_have_room_under_tiers_that_do_not_are_told_so(tmp_path: Path) -> None:
    rows = policies({"lru": [99, 100], "lfu": [99, 100]}, tiers="large")
    for table, more in policies({"fifo": [5, 7]}, tiers="small").items():
        rows[table] += more
    rows["tier_usage"] = [usage(c["cell_id"], "hbm", 1e9 + 1e9 * (c["tiers"] == "large")) for c in rows["cells"]]
    text = text_of(published(tmp_path, rows))
    assert "- chat: tiers large (2 GB HBM), policy lru" in text
    assert "small with fifo worse (-94 %); lfu equal within 2 %;" in text
    assert "this load tells no policies apart (99 % or more in SLO under each)" in text


def test_what_is_true_of_every_answer_is_said_once(tmp_path: Path) -> None:
    parts = [
        with_met(cell(f"{trace}{seed}", trace=trace, seed=seed, is_settled=False), 60 + seed)
        for trace in ("chat", "agent")
        for seed in (0, 1)
    ]
    text = text_of(published(tmp_path, study_of(*parts)))
    assert "In each: the load had not settled (warm-up shorter than the sessions). - agent: tiers" in text
    assert text.count("had not settled") == 1


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


def other(name: str, verdict: str, percent: float, half: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """An alternative that differs by so many percent from a recommended goodput of 4/s."""
    ends = {} if half is None else {"low": percent - half, "high": percent + half}
    bounds = {f"difference_{end}_per_s": ends[end] / 25 if ends else None for end in ("low", "high")}
    about = {"alternative": name, "verdict": verdict, "difference_per_s": percent / 25, **bounds}
    return about | {"recommended_goodput_per_s": 4.0, "is_runner_up": False} | more


@pytest.mark.parametrize(
    ("others", "text"),
    [
        (
            [other("hbm_dram_ssd", "not shown", 0.3, 1.5), other("hbm_only", "worse", -98)],
            "hbm_only worse (-98 %), hbm_dram_ssd not told apart (+0.3 % [-1.2, 1.8])",
        ),
        ([other("a", "equal", 0.1), other("b", "equal", -0.1)], "a and b equal within 2 %"),
        ([other("a", "no better", -4.0, 5)], "a no better (-4 % [-9, 1])"),
        ([other("a", "better", 12, 5)], "a better (+12 % [7, 17])"),
        ([other("a", "too few seeds", -3.3, None)], "a not told apart (-3.3 %)"),
        (
            [other("a", "not shown", 1.0, 5), other("b", "not shown", 0, 2), other("c", "not shown", -1.0, 5)],
            "a, b and c not told apart (within -6 to +6 %)",
        ),
        (
            [other("a", "worse", -12), other("b", "worse", -20), other("c", "worse", -30)],
            "a, b and c worse (closest a, -12 %)",
        ),
        ([other(f"a_long_name_{i}", "equal", 0.0) for i in range(5)], "5 others equal within 2 %"),
        ([other("a", "not shown", 100, 50, recommended_goodput_per_s=0.0)], "a not told apart (+4/s [2, 6])"),
        ([other("a", "too few seeds", 0, None, difference_per_s=None)], "a not told apart (no seed in common)"),
    ],
)
def test_how_alternatives_stand(others: list[dict[str, Any]], text: str) -> None:
    assert words.standing(others, 0.02) == text


def test_the_runner_up_stands_beside_the_gain() -> None:
    row = {
        "stage": "route", "option_verdict": "better", "reference": "round_robin", "reference_goodput_per_s": 3.2,
        "difference_per_s": 0.8, "difference_low_per_s": 0.64, "difference_high_per_s": 0.96, "equivalence_ratio": 0.02,
        "other_options": [
            other("least_loaded", "worse", -2, 1, is_runner_up=True, gain_share_ratio=0.9),
            other("round_robin", "worse", -20),
            other("random", "worse", -30),
        ],
    }  # fmt: skip
    expected = "+25 % [20, 30] over round_robin; least_loaded gets 90 % of that gain (-2 % [-3, -1]); "
    assert words.option_finding(row) == f"{expected}random worse (-30 %)"


def test_bytes() -> None:
    assert [words.byte_text(b) for b in (4e10, 2e12, float("inf"))] == ["40 GB", "2 TB", "unlimited"]
