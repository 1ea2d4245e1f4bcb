from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_warehouse_factory import cell, published, quality, query, study_of, usage, with_met

Sizes = dict[str, tuple[int, list[int]]]
SMALL, MIDDLE, LARGE = (1, [70, 72]), (2, [90, 92]), (3, [91, 93])
STEADY: Sizes = {"small": SMALL, "middle": MIDDLE, "large": LARGE}
LISTS = "worse_tiers, equal_tiers, no_better_tiers, unclear_tiers"


def sized(sizes: Sizes, trace: str = "chat", **changes: dict[str, Any]) -> dict[str, list[Any]]:
    """Tiers by name: GB of HBM and requests of a hundred that meet the SLO, by seed; changes to cells by name."""
    parts, capacity = [], []
    for name, (gb, counts) in sizes.items():
        for seed, met in enumerate(counts):
            cell_id = f"{trace}{name}{seed}"
            parts.append(with_met(cell(cell_id, trace=trace, tiers=name, seed=seed, **changes.get(name, {})), met))
            capacity.append(usage(cell_id, "hbm", gb * 1e9))
    return study_of(*parts, tier_usage=capacity)


def options(counts: dict[str, list[int]], stage: str = "place", values: dict[str, int] | None = None) -> dict[str, Any]:
    """Policies or routers by name: requests of a hundred that meet the SLO, by seed; values that each of them sets."""
    group = "eviction" if stage == "place" else "routing"
    parts = []
    for name, by_seed in counts.items():
        keys = {group: dict.fromkeys(map(str, range((values or {}).get(name, 1) + 1)), 0)}
        for seed, met in enumerate(by_seed):
            row = cell(f"{name}{seed}", stage=stage, seed=seed, config=json.dumps(keys), **{group: name})
            parts.append(with_met(row, met))
    return study_of(*parts)


@pytest.mark.parametrize(
    ("change", "lists", "conclusion"),
    [
        ({}, (["small"], ["large"], [], []), "shown"),
        ({"small": (1, [60, 91])}, ([], ["large"], [], ["small"]), "partly shown"),  # might be as good
        ({"large": (3, [82, 100])}, (["small"], [], [], ["large"]), "partly shown"),  # might be better
        ({"large": (3, [73, 74])}, (["small"], [], ["large"], []), "shown"),  # equal or worse: no reason to pay for it
        ({"small": (1, [73, 74])}, ([], ["large"], ["small"], []), "partly shown"),  # equal, it would be cheaper
        ({"small": (1, [60, 91]), "large": (3, [82, 100])}, ([], [], [], ["large", "small"]), "not shown"),
    ],
)
def test_the_cheapest_tiers_within_two_percent_and_what_is_known_of_each_other(
    tmp_path: Path, change: Sizes, lists: tuple[list[str], ...], conclusion: str
) -> None:
    warehouse = published(tmp_path, sized(STEADY | change))
    found = query(warehouse, f"select tiers, {LISTS}, conclusion, is_shown from recommendation")
    assert found == [("middle", *lists, conclusion, conclusion == "shown")]


def test_one_seed_tells_nothing_apart_and_one_size_has_nothing_to_be_told_from(tmp_path: Path) -> None:
    single = {name: (gb, counts[:1]) for name, (gb, counts) in STEADY.items()}
    one_seed = published(tmp_path / "1", sized(single))
    columns = f"tiers, {LISTS}, conclusion"
    assert query(one_seed, f"select {columns} from recommendation") == [
        ("middle", [], [], [], ["large", "small"], "one outcome")
    ]
    one_size = published(tmp_path / "2", sized({"middle": MIDDLE}))
    assert query(one_size, f"select {columns} from recommendation") == [("middle", [], [], [], [], "shown")]


def test_a_difference_of_tiers_by_hand(tmp_path: Path) -> None:
    warehouse = published(tmp_path, sized(STEADY | {"large": (3, [88, 93])}))
    got = query(
        warehouse,
        """select question, is_cheaper, recommended_goodput_per_s, comparison_count, difference_per_s,
        difference_low_per_s, difference_high_per_s, verdict from alternatives where alternative = 'large'""",
    )[0]
    half = stats.t.ppf(1 - 0.025 / 3, 1) * np.std([-0.2, 0.1], ddof=1) / math.sqrt(2)
    assert got[:4] == ("tiers", False, pytest.approx(9.1), 3)
    assert got[4:] == (pytest.approx(-0.05), pytest.approx(-0.05 - half), pytest.approx(-0.05 + half), "not shown")


def test_no_interval_reaches_below_a_goodput_of_nothing(tmp_path: Path) -> None:
    tiers = published(tmp_path / "1", sized({"small": (1, [10, 80]), "large": (2, [90, 92])}))
    assert query(tiers, "select difference_low_per_s from alternatives") == [(pytest.approx(-9.1),)]
    policies = published(tmp_path / "2", options({"lru": [90, 92], "lfu": [10, 80]}))
    lowest = "select difference_low_per_s from placement_ranking where eviction = 'lfu'"
    assert query(policies, lowest) == [(pytest.approx(-9.1),)]


@pytest.mark.parametrize(
    ("change", "name", "conclusion"),
    [
        ({}, "small", "shown"),  # nobody would choose it
        ({}, "middle", "not settled"),  # it is what is recommended
        ({}, "large", "not settled"),  # settled, it might be better
        ({"large": (3, [10, 12])}, "large", "shown"),
    ],
)
def test_an_unsettled_load_matters_unless_its_tiers_are_worse(
    tmp_path: Path, change: Sizes, name: str, conclusion: str
) -> None:
    rows = sized(STEADY | change, **{name: {"is_settled": False}})
    assert query(published(tmp_path, rows), "select tiers, conclusion, is_settled from recommendation") == [
        ("middle", conclusion, conclusion == "shown")
    ]


@pytest.mark.parametrize(("met", "conclusion"), [([2, 4], "shown"), ([99, 99], "light load"), ([97, 98], "shown")])
def test_a_load_is_too_light_only_if_every_alternative_has_room(
    tmp_path: Path, met: list[int], conclusion: str
) -> None:
    rows = sized({"small": (2, [99, 100]), "cheap": (1, met) if met[0] < 50 else (3, met)})
    found = query(published(tmp_path, rows), "select tiers, conclusion, least_attainment_ratio from recommendation")
    assert found == [("small", conclusion, pytest.approx(np.mean(met) / 100))]


@pytest.mark.parametrize(("has_prefixes", "conclusion"), [(True, "no reuse"), (False, "no prefixes")])
def test_without_reuse_placement_has_no_answer_but_routing_does(
    tmp_path: Path, has_prefixes: bool, conclusion: str
) -> None:
    rows = options({"lru": [50, 52], "lfu": [50, 52]})
    for table, more in options({"round_robin": [50, 52], "random": [50, 52]}, "route").items():
        rows[table] += more
    nothing = {"infinite_cache_hit_ratio": 0.0, "has_prefixes": has_prefixes}
    rows["cells"] = [row | nothing for row in rows["cells"]]
    found = query(published(tmp_path, rows), "select stage, conclusion from recommendation order by 1")
    assert found == [("place", conclusion), ("route", "shown")]


def test_a_trace_that_was_read_is_one_trace(tmp_path: Path) -> None:
    rows = sized(STEADY) | {"trace_quality": [quality("chat", "kept", 100)]}
    assert query(published(tmp_path, rows), "select conclusion, worse_tiers from recommendation") == [
        ("one trace", ["small"])
    ]


def test_where_nothing_meets_the_slo_nothing_is_shown(tmp_path: Path) -> None:
    rows = sized({"small": (1, [0, 0]), "large": (2, [0, 0])})
    assert query(published(tmp_path, rows), "select conclusion from recommendation") == [("nothing in SLO",)]


def test_a_policy_not_shown_better_is_not_recommended(tmp_path: Path) -> None:
    chosen = "select eviction, option_verdict, worse_options, unclear_options, is_shown from recommendation"
    noisy = published(tmp_path / "1", options({"lru": [50, 60, 54], "lfu": [60, 55, 64]}))
    assert query(noisy, chosen) == [("lru", "reference", [], ["lfu"], False)]
    clear = published(tmp_path / "2", options({"lru": [50, 52, 54], "lfu": [60, 63, 64]}))
    assert query(clear, chosen) == [("lfu", "better", ["lru"], [], True)]


def test_without_the_reference_options_are_held_against_the_best(tmp_path: Path) -> None:
    rows = options({"lru": [50, 52, 54], "lfu": [60, 63, 64], "fifo": [61, 61, 62]})
    warehouse = published(tmp_path, rows, reference_eviction="arc")
    chosen = "select eviction, option_verdict, worse_options, unclear_options, conclusion from recommendation"
    assert query(warehouse, chosen) == [("lfu", "no reference", ["lru"], ["fifo"], "partly shown")]


ROUTERS = {"round_robin": [50, 52, 54], "least_loaded": [79, 80, 83], "cost_model": [80, 82, 84]}


def test_the_gain_of_the_runner_up_by_hand(tmp_path: Path) -> None:
    warehouse = published(tmp_path, options(ROUTERS, "route"))
    chosen = "select routing, option_verdict, runner_up, runner_up_gain_share_ratio from recommendation"
    gain, share = 30.0, (29 + 28 + 29) / 3 / 30
    assert query(warehouse, chosen) == [("cost_model", "better", "least_loaded", pytest.approx(share))]
    behind = """select difference_per_s, difference_high_per_s - difference_per_s, comparison_count from alternatives
        where is_runner_up"""
    half = stats.t.ppf(1 - 0.025 / 3, 2) * np.std([-0.1, -0.2, -0.1], ddof=1) / math.sqrt(3)
    assert query(warehouse, behind) == [(pytest.approx((share - 1) * gain / 10), pytest.approx(half), 3)]


@pytest.mark.parametrize(
    ("values", "others", "runner_up"),
    [
        ({"least_loaded": 3, "other": 2}, [79, 81, 82], "other"),  # both near the best: the simpler of them
        ({"least_loaded": 3, "other": 4}, [79, 81, 83], "least_loaded"),
        ({"least_loaded": 3, "other": 2}, [70, 72, 74], "least_loaded"),  # only one is near
        ({"least_loaded": 1, "other": 1}, [20, 22, 24], "least_loaded"),
    ],
)
def test_the_runner_up_is_the_simplest_near_the_best(
    tmp_path: Path, values: dict[str, int], others: list[int], runner_up: str
) -> None:
    warehouse = published(tmp_path, options(ROUTERS | {"other": others}, "route", {"cost_model": 9, **values}))
    assert query(warehouse, "select routing, runner_up from recommendation") == [("cost_model", runner_up)]


def test_who_gains_nothing_is_no_runner_up(tmp_path: Path) -> None:
    warehouse = published(tmp_path, options(ROUTERS | {"least_loaded": [49, 50, 51]}, "route"))
    assert query(warehouse, "select routing, runner_up from recommendation") == [("cost_model", None)]
    reference = published(tmp_path / "2", options({"round_robin": [80, 82], "cost_model": [50, 52]}, "route"))
    assert query(reference, "select routing, runner_up from recommendation") == [("round_robin", None)]


def test_other_tiers_are_held_against_with_the_policy_that_does_best_there(tmp_path: Path) -> None:
    parts, capacity = [], []
    for tiers, gb, eviction, met in (
        ("small", 1, "lru", 40), ("small", 1, "lfu", 60), ("large", 2, "lru", 80), ("large", 2, "lfu", 80)
    ):  # fmt: skip
        for seed in (0, 1, 2):
            row = cell(f"{tiers}{eviction}{seed}", tiers=tiers, eviction=eviction, seed=seed)
            parts.append(with_met(row, met + seed))
            capacity.append(usage(row["cell_id"], "hbm", gb * 1e9))
    warehouse = published(tmp_path, study_of(*parts, tier_usage=capacity))
    found = "select question, alternative, difference_per_s, is_cheaper from alternatives order by 1"
    assert query(warehouse, found) == [
        ("policy", "lfu", 0.0, False),
        ("tiers", "small with lfu", pytest.approx(-2.0), True),
    ]
