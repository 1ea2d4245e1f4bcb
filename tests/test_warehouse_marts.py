from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_warehouse_factory import (
    break_even,
    cell,
    late,
    published,
    query,
    rejected,
    request,
    study_of,
    two_stage_study,
    usage,
    with_met,
)

from pipeline import metrics


def test_cell_metrics_of_four_requests_by_hand(tmp_path: Path) -> None:
    rows = [
        request("c", 0, ttft_ms=10.0, tpot_ms=1.0, hbm_tokens=60, recomputed_tokens=40, served_tier="hbm"),
        request("c", 1, ttft_ms=30.0, tpot_ms=11.0, max_itl_ms=20.0),  # too slow between tokens
        request("c", 2, ttft_ms=99.0, tpot_ms=None, max_itl_ms=None, output_tokens=1),  # judged on TTFT alone
        rejected("c", 3),
    ]
    warehouse = published(tmp_path, study_of((cell("c", measured_s=4.0), rows)))
    got = query(
        warehouse,
        """select request_count, completed_count, rejected_count, goodput_per_s, slo_attainment_ratio, ttft_p50_ms,
        ttft_p99_ms, tpot_p50_ms, max_itl_p99_ms, hit_ratio, recomputed_tokens, output_tokens_per_s
        from cell_metrics""",
    )[0]
    assert got == pytest.approx(
        (4, 3, 1, 2 / 4, 2 / 4, 30.0, 30 + 0.98 * 69, 6.0, 8 + 0.99 * 12, 60 / 300, 240, 23 / 4)
    )


def test_only_the_measured_window_is_judged_but_all_hits_count(tmp_path: Path) -> None:
    hit = {"hbm_tokens": 60, "recomputed_tokens": 40, "served_tier": "hbm"}
    rows = [request("c", 0), request("c", 1, ttft_ms=99.0, is_measured=False, **hit), late("c", 2)]
    rows += [rejected("c", 3) | {"is_measured": False}, rejected("c", 4, "no_room")]
    warehouse = published(tmp_path, study_of((cell("c", stage="route", measured_s=4.0), rows)))
    got = query(
        warehouse,
        """select request_count, rejected_count, goodput_per_s, slo_attainment_ratio, ttft_p50_ms, hit_ratio
        from cell_metrics""",
    )
    assert got == [(3, 1, 1 / 4, 1 / 3, 75.5, 60 / 300)]
    assert query(warehouse, "select rejected_by_reason from routing_ranking") == [('{"no_room":1}',)]
    assert query(warehouse, "select served_tier, request_count from served_tier_latency") == [("recompute", 2)]


def test_requests_that_all_arrive_at_once_are_counted_over_the_makespan(tmp_path: Path) -> None:
    row = cell("c", measured_s=0.0, makespan_s=5.0, arrived_per_s=None)
    warehouse = published(tmp_path, study_of((row, [request("c", 0), request("c", 1)])))
    assert query(warehouse, "select goodput_per_s from cell_metrics") == [(0.4,)]


def test_sql_judges_the_slo_as_metrics_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ttft = np.where(rng.random(300) < 0.2, 100.0, rng.uniform(50, 150, 300))
    tpot = np.where(rng.random(300) < 0.2, np.nan, rng.uniform(5, 15, 300))
    rows = [
        request(
            "c", i, ttft_ms=ttft[i], e2el_ms=1e4, tpot_ms=None if math.isnan(tpot[i]) else tpot[i],
            max_itl_ms=None if math.isnan(tpot[i]) else 100.0, output_tokens=1 if math.isnan(tpot[i]) else 9,
        )
        for i in range(300)
    ]  # fmt: skip
    warehouse = published(tmp_path, study_of((cell("c"), [*rows, rejected("c", 300)])))
    met = metrics.meets_slo(np.append(ttft, np.nan), np.append(tpot, np.nan), 100.0, 10.0)
    goodput, attainment = query(warehouse, "select goodput_per_s, slo_attainment_ratio from cell_metrics")[0]
    assert goodput == pytest.approx(metrics.goodput_per_s(met, 10.0))
    assert attainment == pytest.approx(metrics.slo_attainment_ratio(met))


def policies(lru: list[int], other: list[int], trace: str = "chat") -> dict[str, list[Any]]:
    parts = []
    for name, counts in (("lru", lru), ("lfu", other)):
        for seed, met in enumerate(counts):
            axes = json.dumps({"trace": trace, "eviction": name, "seed": seed})
            row = cell(f"{trace}{name}{seed}", trace=trace, eviction=name, seed=seed, axes=axes)
            parts.append(with_met(row, met))
    return study_of(*parts)


def test_verdicts_on_a_policy(tmp_path: Path) -> None:
    cases = {
        "better": ([50, 52, 54], [60, 63, 64]),
        "worse": ([60, 63, 64], [50, 52, 54]),
        "equal": ([50, 52, 54], [50, 52, 54]),
        "not shown": ([50, 60, 54], [60, 55, 64]),
        "too few seeds": ([50], [60]),
        "too few seeds, alike": ([50, 50, 50], [60, 60, 60]),  # the seed varies nothing, so there is no interval
    }
    rows = study_of()
    for trace, counts in cases.items():
        for table, more in policies(*counts, trace).items():
            rows[table] += more
    warehouse = published(tmp_path, rows)
    verdicts = query(warehouse, "select trace, verdict from placement_ranking where eviction = 'lfu'")
    assert dict(verdicts) == {trace: trace.split(",")[0] for trace in cases}
    assert query(warehouse, "select distinct verdict from placement_ranking where eviction = 'lru'") == [("reference",)]


def test_intervals_by_hand(tmp_path: Path) -> None:
    warehouse = published(tmp_path, policies([50, 52, 57], [60, 63, 64]))
    got = query(
        warehouse,
        """select goodput_per_s, goodput_low_per_s, goodput_high_per_s, difference_per_s, difference_low_per_s,
        difference_high_per_s, reference_goodput_per_s, common_seed_count from placement_ranking
        where eviction = 'lfu'""",
    )[0]
    t = stats.t.ppf(0.975, 2)
    mean, half = 18.7 / 3, t * np.std([6.0, 6.3, 6.4], ddof=1) / math.sqrt(3)
    difference, half_difference = 2.8 / 3, t * np.std([1.0, 1.1, 0.7], ddof=1) / math.sqrt(3)
    expected = (mean, mean - half, mean + half, difference, difference - half_difference, difference + half_difference)
    assert got == pytest.approx((*expected, 15.9 / 3, 3))


def test_difference_is_paired_on_common_seeds_and_widened_for_three_policies(tmp_path: Path) -> None:
    rows = policies([50, 52, 54], [60, 63])
    extra = [
        with_met(cell(f"f{s}", eviction="fifo", seed=s, axes=json.dumps({"eviction": "fifo"})), 51 + s) for s in (1, 2)
    ]
    rows["cells"] += [c for c, _ in extra]
    rows["requests"] += [r for _, requests in extra for r in requests]
    warehouse = published(tmp_path, rows)
    mean, low, seeds, options = query(
        warehouse,
        """select difference_per_s, difference_low_per_s, common_seed_count, option_count from placement_ranking
        where eviction = 'lfu'""",
    )[0]
    assert (mean, seeds, options) == (pytest.approx(1.05), 2, 3)
    assert mean - low == pytest.approx(stats.t.ppf(1 - 0.025 / 3, 1) * np.std([1.0, 1.1], ddof=1) / math.sqrt(2))


def test_intervals_hold_together_over_all_pairs_of_the_workload(tmp_path: Path) -> None:
    parts = [
        with_met(
            cell(f"{tiers}{name}{seed}", tiers=tiers, eviction=name, seed=seed), met + seed * (1 + 3 * (name == "lfu"))
        )
        for tiers, names in (("a", ("lru", "lfu", "fifo")), ("b", ("lru", "lfu")), ("c", ("lru",)))
        for name, met in zip(names, (50, 60, 55), strict=False)
        for seed in (0, 1)
    ]
    warehouse = published(tmp_path, study_of(*parts))
    counts = "select option_comparison_count, tiers_comparison_count from stg_comparisons"
    assert query(warehouse, counts) == [(3 + 1 + 0, 3)]
    half = "select tiers, difference_high_per_s - difference_per_s from placement_ranking where eviction = 'lfu'"
    expected = pytest.approx(stats.t.ppf(1 - 0.025 / 4, 1) * np.std([1.0, 1.3], ddof=1) / math.sqrt(2))
    assert query(warehouse, f"{half} order by 1") == [("a", expected), ("b", expected)]
    widths = query(warehouse, "select sample_count, comparison_count, quantile from student_t order by 2")
    assert widths == [(2, n, pytest.approx(stats.t.ppf(1 - 0.025 / n, 1))) for n in (1, 3, 4)]


def test_intervals_end_where_nothing_is_possible(tmp_path: Path) -> None:
    parts = [
        with_met(cell(f"{trace}{seed}", trace=trace, seed=seed), met)
        for trace, counts in (("low", (0, 0, 3)), ("high", (100, 100, 97)))
        for seed, met in enumerate(counts)
    ]
    parts += [
        (cell(f"fast{seed}", trace="fast", seed=seed), [request(f"fast{seed}", 0, ttft_ms=ttft_ms)])
        for seed, ttft_ms in enumerate((1.0, 1.0, 91.0))
    ]
    warehouse = published(tmp_path, study_of(*parts))
    columns = "goodput_low_per_s, goodput_high_per_s, attainment_low_ratio, attainment_high_ratio"
    rows = dict(query(warehouse, f"select trace, ({columns}) from placement_ranking"))
    half = stats.t.ppf(0.975, 2) * np.std([0, 0, 0.03], ddof=1) / math.sqrt(3)
    assert rows["low"] == (0, pytest.approx(0.1 + 10 * half), 0, pytest.approx(0.01 + half))
    assert rows["high"][2:] == (pytest.approx(0.99 - half), 1)
    assert query(warehouse, "select ttft_p99_low_ms from placement_ranking where trace = 'fast'") == [(0,)]


def test_settings_that_differ_are_never_paired(tmp_path: Path) -> None:
    parts = []
    for running, met in ((16, 50), (64, 60)):
        for name in ("lru", "lfu"):
            axes = json.dumps({"eviction": name, "engine.max_running": running, "seed": 0})
            parts.append(with_met(cell(f"{name}{running}", eviction=name, axes=axes), met))
    warehouse = published(tmp_path, study_of(*parts))
    rows = query(warehouse, "select setting, eviction, difference_per_s from placement_ranking order by all")
    assert rows == [(f"engine.max_running={n}", name, 0.0) for n in (16, 64) for name in ("lfu", "lru")]


def test_a_value_inside_a_policy_makes_another_policy_of_it(tmp_path: Path) -> None:
    variants = [with_met(cell("l", axes='{"eviction": "lru"}'), 50)]
    variants += [
        with_met(
            cell(f"s{i}", eviction="s3fifo", axes=json.dumps({"eviction": "s3fifo", "eviction.small_ratio": ratio})), 60
        )
        for i, ratio in enumerate((0.1, 0.2))
    ]
    warehouse = published(tmp_path, study_of(*variants))
    assert query(warehouse, "select eviction, difference_per_s, option_count from placement_ranking order by all") == [
        ("lru", 0.0, 3),
        ("s3fifo eviction.small_ratio=0.1", 1.0, 3),
        ("s3fifo eviction.small_ratio=0.2", 1.0, 3),
    ]


def test_tier_sizes_inside_an_option_are_tiers_compared_with_each_other(tmp_path: Path) -> None:
    sizes = (("tiers.dram_bytes", 256e9), ("tiers.dram_bytes", 1.5e12), ("tiers.dram_bytes", 64e9))
    parts, capacity = [], []
    for i, (key, size) in enumerate(sizes):
        axes = {"tiers": "hbm_dram", key: size, "tiers.shape": None, "engine.max_running": 64, "seed": 0}
        parts.append(with_met(cell(f"c{i}", tiers="hbm_dram", axes=json.dumps(axes)), 60 + i))
        capacity.append(usage(f"c{i}", "dram", size))
    warehouse = published(tmp_path, study_of(*parts, tier_usage=capacity))
    assert query(warehouse, "select tiers, setting from placement_ranking") == [
        ("hbm_dram dram=64GB", ""), ("hbm_dram dram=256GB", ""), ("hbm_dram dram=1.5TB", "")
    ]  # fmt: skip
    assert query(warehouse, "select tiers_count from recommendation") == [(3,)]


def test_a_value_that_does_not_vary_is_in_no_name_whatever_another_study_does(tmp_path: Path) -> None:
    for study, small in (("one", (0.1,)), ("many", (0.1, 0.2))):
        parts = [
            with_met(cell(f"{ratio}{seed}", eviction="s3fifo", seed=seed, axes=json.dumps(axes)), 50)
            for ratio in small
            for seed in (0, 1)
            for axes in [{"eviction.small_ratio": ratio, "trace.session_count": 40, "seed": seed}]
        ]
        warehouse = published(tmp_path, study_of(*parts), study=study)
    names = query(warehouse, "select study, eviction, setting, seed_count from placement_ranking order by all")
    varied = [("many", f"s3fifo eviction.small_ratio={ratio}", "", 2) for ratio in (0.1, 0.2)]
    assert names == [*varied, ("one", "s3fifo", "", 2)]


def test_a_value_that_only_some_cells_have_tells_them_apart(tmp_path: Path) -> None:
    parts = [with_met(cell("a"), 50), with_met(cell("b", axes='{"tiers.dram_bytes": 1e9}'), 60)]
    warehouse = published(tmp_path, study_of(*parts))
    assert query(warehouse, "select tiers from ranking order by 1") == [("small",), ("small dram=1GB",)]


def test_costs_by_hand(tmp_path: Path) -> None:
    warehouse = published(tmp_path, two_stage_study())
    rows = query(
        warehouse,
        """select tiers, hbm_usd, dram_usd, tiers_usd, gpu_count, gpu_usd_per_hour, gpu_usd_per_million_output_tokens,
        is_on_frontier from capacity_frontier where stage = 'place' and eviction = 'lru' order by tiers""",
    )
    per_million = 2 * 4.18 / 3600 / (100 * 11 / 10) * 1e6
    assert rows[0] == (
        "large",
        40 * 187.5,
        100 * 18.8,
        40 * 187.5 + 100 * 18.8,
        2,
        8.36,
        pytest.approx(per_million),
        True,
    )
    assert rows[1] == ("small", 40 * 187.5, 0.0, 40 * 187.5, 2, 8.36, pytest.approx(per_million), True)
    ranks_unknown = "select gpu_usd_per_hour from capacity_frontier where stage = 'route'"
    assert query(warehouse, ranks_unknown) == [(None,), (None,)]


def test_a_dearer_configuration_that_gives_less_is_off_the_frontier(tmp_path: Path) -> None:
    parts = [with_met(cell(name, tiers=name), met) for name, met in (("a", 50), ("b", 40), ("c", 60), ("d", 60))]
    capacity = [usage("a", "hbm", 1e9), usage("b", "hbm", 2e9), usage("c", "hbm", 3e9), usage("d", "hbm", 4e9)]
    warehouse = published(tmp_path, study_of(*parts, tier_usage=capacity))
    rows = query(warehouse, "select tiers, is_on_frontier from capacity_frontier order by tiers")
    assert rows == [("a", True), ("b", False), ("c", True), ("d", False)]


def test_latency_by_served_tier_by_hand(tmp_path: Path) -> None:
    dram = {"dram_tokens": 50, "hbm_tokens": 30, "recomputed_tokens": 20, "served_tier": "dram"}
    rows = [
        request("c", 0, ttft_ms=40.0, **dram),
        request("c", 1, ttft_ms=60.0, **dram),
        request("c", 2, ttft_ms=90.0),
        rejected("c", 3),
    ]
    warehouse = published(tmp_path, study_of((cell("c"), rows)))
    got = query(
        warehouse,
        """select served_tier, request_count, request_ratio, token_ratio, ttft_p50_ms, ttft_p99_ms
        from served_tier_latency""",
    )
    assert got == [
        ("hbm", 0, 0.0, 60 / 300, None, None),
        ("dram", 2, 2 / 3, 100 / 300, 50.0, pytest.approx(59.8)),
        ("recompute", 1, 1 / 3, 140 / 300, 90.0, 90.0),
    ]


FIELDS = "served_tier, paired_request_count, recompute_ttft_p50_ms, ttft_saved_ms, slower_ratio"


def loading_study(*others: tuple[str, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Two requests served from DRAM in 40 and 60 ms, and `others`: name, what differs in configuration and in cells."""
    dram = {"dram_tokens": 100, "recomputed_tokens": 0, "served_tier": "dram"}
    base = {"placement": {"load_or_recompute": "always_load"}, "tiers": {"name": "large"}, "engine": {"max": 1}}
    parts = [(cell("c", config=json.dumps(base)), [request("c", i, ttft_ms=t, **dram) for i, t in enumerate((40, 60))])]
    capacity = [usage("c", "hbm", 1e9), usage("c", "dram", 1e9)]
    for name, config, changes in others:
        row = cell(name, tiers=name, config=json.dumps(base | config), **changes)
        parts.append((row, [request(name, 0, ttft_ms=90.0), request(name, 1, ttft_ms=50.0)]))
        capacity += [usage(name, "hbm", 1e9), usage(name, "dram", 0.0 if name.startswith("hbm") else 1e9)]
    return study_of(*parts, tier_usage=capacity)


def test_requests_are_paired_with_themselves_where_they_are_computed_again(tmp_path: Path) -> None:
    only = ("hbm_only", {"tiers": {"name": "hbm_only"}, "placement": {"load_or_recompute": "break_even"}}, {})
    only[1]["prefetch"] = {"name": "oracle"}  # of no effect there
    recompute = ("z", {"placement": {"load_or_recompute": "always_recompute", "delay_weight": 2.0}}, {})
    unlike = [
        ("hbm_busy", only[1], {"offered_per_s": 11.0}),
        ("hbm_seed", only[1] | {"seed": 1}, {"seed": 1}),
        ("hbm_engine", only[1] | {"engine": {"max": 2}}, {}),
        ("y", recompute[1] | {"tiers": {"name": "other"}}, {}),
        ("w", recompute[1] | {"prefetch": {"name": "oracle"}}, {}),
    ]
    paired = ("dram", 2, 70.0, (50 - 10) / 2, 0.5)
    for i, others in enumerate(([only], [recompute], [only, recompute], unlike)):
        warehouse = published(tmp_path / str(i), loading_study(*others))
        got = query(warehouse, f"select {FIELDS} from served_tier_latency where tiers = 'small'")
        assert got == [("dram", 0, None, None, None) if others is unlike else paired]
        pairs = query(warehouse, "select recomputing_cell_id from stg_recomputing where cell_id = 'c'")
        assert pairs == ([] if others is unlike else [(others[-1][0],)])


def test_verdicts_on_loading_are_said_in_words(tmp_path: Path) -> None:
    ends = {"load_from_tokens": 1024, "load_to_tokens": 4096}
    rows = [
        break_even("dram", 16, 1.0, 2.0, load_from_tokens=16, load_to_tokens=4096),
        break_even("dram", 4096, 1.0, 2.0, load_from_tokens=16, load_to_tokens=4096),
        break_even("dram", 1024, 1.0, 1.0, sharer_count=2, is_extrapolated=True, **ends),
        break_even("dram", 4096, 1.0, 2.0, sharer_count=2, **ends),
        *(break_even("dram", n, 1.0, 2.0, sharer_count=4, **ends) for n in (1024, 4096)),
        break_even("dram", 8192, 3.0, 2.0, sharer_count=4, **ends),
        break_even("ssd", 16, 4.0, 1.0),
        break_even("ssd", 4096, 3.0, 1.0),
        break_even("ssd", 16, 3.0, 1.0, sharer_count=2, break_even_bytes_per_s=None),
    ]
    warehouse = published(tmp_path, study_of((cell("c"), [request("c", 0)]), break_even=rows))
    got = query(warehouse, "select tier, verdict, needed_bytes_per_s, needed_at_tokens in (16, 1024) from load_verdict")
    assert got == [
        ("dram", "load at any length", 3.5e9, True),
        ("dram", "load from 1,024 tokens on (extrapolated)", 3.5e9, False),
        ("dram", "load from 1,024 to 4,096 tokens, recompute others", 3.5e9, True),
        ("ssd", "never load: recompute is faster at any length; needs 21 GB/s, has 7", 21e9, False),
        ("ssd", "never load: recompute is faster at any length, whatever the bandwidth", None, None),
    ]


def test_rejections_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [request("c", 0), late("c", 1), rejected("c", 2), rejected("c", 3, "no_room"), rejected("c", 4, "no_room")]
    warehouse = published(tmp_path, study_of((cell("c", stage="route"), rows)))
    got = query(warehouse, "select rejected_count, rejected_by_reason, slo_attainment_ratio from routing_ranking")
    assert got == [(3, '{"no_room":2,"prompt_too_long":1}', 0.2)]


def test_placements_and_prefetchers_are_compared_where_they_vary(tmp_path: Path) -> None:
    parts = [
        with_met(cell(f"{placement}{prefetch}{seed}", placement=placement, prefetch=prefetch, seed=seed), met + seed)
        for placement, prefetch, met in (
            ("tiered", "none", 50), ("vllm_offload", "none", 70), ("vllm_offload", "oracle", 40)
        )
        for seed in range(3)
    ]  # fmt: skip
    rows = {"cells": [row for row, _ in parts], "requests": [r for _, requests in parts for r in requests]}
    warehouse = published(tmp_path, rows)
    found = query(warehouse, "select compared, reference, verdict from ranking order by goodput_per_s")
    reference = "lru tiered prefetch none"
    assert found == [
        ("lru vllm_offload prefetch oracle", reference, "worse"),
        (reference, reference, "reference"),
        ("lru vllm_offload prefetch none", reference, "better"),
    ]
    assert query(warehouse, "select distinct compared from recommendation") == [("lru vllm_offload prefetch none",)]


def test_values_of_a_placement_are_compared_with_the_first_of_them(tmp_path: Path) -> None:
    rules = (("always_load", 50), ("break_even", 70))
    parts = [
        with_met(cell(f"{rule}{seed}", seed=seed, axes=json.dumps({"placement.load_or_recompute": rule})), met + seed)
        for rule, met in rules
        for seed in range(3)
    ]
    rows = {"cells": [row for row, _ in parts], "requests": [r for _, requests in parts for r in requests]}
    first, second = (f"lru tiered placement.load_or_recompute={rule}" for rule, _ in rules)
    found = query(published(tmp_path, rows), "select compared, reference, verdict from ranking order by 1")
    assert found == [(first, first, "reference"), (second, first, "better")]
