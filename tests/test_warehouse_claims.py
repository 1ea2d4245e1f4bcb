from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import yaml
from test_warehouse_factory import CONF, cell, from_conf, published, query, reporting, study_of, with_met

from pipeline.spec import InputError, Sourced, build
from pipeline.values import Price
from pipeline.warehouse.claims import Claim, Claims
from pipeline.warehouse.summary import claims_sentence


def found(warehouse: Path, claim_id: str) -> tuple[object, ...]:
    return query(warehouse, "select ours, verdict, remark from claims where claim_id = ?", claim_id)[0]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("w"), study_of(with_met(cell("c"), 60)))


@pytest.mark.parametrize(
    ("claim_id", "ours", "verdict"),
    [
        ("A1.chat", 73.0, "holds"),
        ("A1.agent", 73.0, "holds"),
        ("A1.document_qa", 73.0, "holds"),
        ("A2", 73 / (1 + 8 * 3.5 / 187.5 + 64 * 0.08 / 187.5), "holds"),
        ("A2.street_2026", 73 / (1 + 8 * 18.8 / 187.5 + 64 * 0.356 / 187.5), "not judged"),
        ("A2.hbm_component_h200", 73 / (1 + 8 * 18.8 / 10.6 + 64 * 0.356 / 10.6), "not judged"),
        ("A9.throughput", 1000 / 13.24, "differs"),
        ("A12.cost", (96 * 187.5 + 86 * 3.5 + 10 * 0.08) / (10 * 187.5 + 86 * 3.5 + 96 * 0.08), "holds"),
        ("A13.sessions", 1120 / 104, "holds"),
    ],
)
def test_arithmetic(warehouse: Path, claim_id: str, ours: float, verdict: str) -> None:
    got = found(warehouse, claim_id)
    assert got[:2] == (pytest.approx(ours, rel=1e-12), verdict)


def test_figures_agree_with_what_is_known_of_them(warehouse: Path) -> None:
    assert round(found(warehouse, "A2")[0], 2) == 62.04
    assert round(found(warehouse, "A2.street_2026")[0]) == 38
    assert 4 < found(warehouse, "A2.hbm_component_h200")[0] < found(warehouse, "A2.hbm_component_b200")[0] < 6


def test_a_variation_of_ours_stands_beside_its_figure_and_is_not_counted(warehouse: Path) -> None:
    beside = "select claim_id, published, unit, tolerance, paper = (select paper from claims where claim_id = 'A2')"
    rows = query(warehouse, f"{beside} from claims where kind = 'sensitivity' order by 1")
    names = ("A2.hbm_component_b200", "A2.hbm_component_h200", "A2.street_2026")
    assert rows == [(name, 62.04, "ratio", None, True) for name in names]
    judged = query(warehouse, "select verdict, count(*) from claims where kind <> 'sensitivity' group by 1 order by 1")
    assert judged == [("cannot be tested", 54), ("differs", 1), ("holds", 6)]
    with duckdb.connect(str(warehouse), read_only=True) as con:
        counted = "Published claims: 6 hold, 1 differs, 54 cannot be tested by this study."
        assert claims_sentence(con, "default") == counted


def test_a_variation_has_a_name_of_its_own() -> None:
    claims = yaml.safe_load((CONF / "claims/papers.yaml").read_text())
    (a2,) = (c for c in claims["papers"][0]["claims"] if c["claim_id"] == "A2")
    a2["sensitivities"][0]["claim_id"] = "A1.chat"
    with pytest.raises(InputError, match=r"claim_id given twice: A1\.chat"):
        build(claims, "claims", Claims)


def test_what_needs_a_study_says_which(warehouse: Path) -> None:
    assert found(warehouse, "A3.recency") == (None, "cannot be tested", "needs study paper_placement")
    assert found(warehouse, "B1.gain") == (
        None,
        "cannot be tested",
        "needs study paper_routing; holds from 0.01 to 0.08",
    )
    labels = "select distinct source_label from claims where claim_id like ? order by 1"
    assert [query(warehouse, labels, f"{letter}%") for letter in "ABC"] == [
        [("full text",)],
        [("second-hand",)],
        [("full text",)],
    ]


def test_every_section_has_all_its_rows(warehouse: Path) -> None:
    ids = {row[0].split(".")[0] for row in query(warehouse, "select claim_id from claims")}
    assert ids >= {f"A{i}" for i in range(1, 14)} | {f"B{i}" for i in range(1, 11)} | {"C1", "C2"}


def test_a_price_changes_the_figure_and_the_verdict_but_nothing_is_tuned(tmp_path: Path) -> None:
    prices = {p.name: p for p in reporting().prices}
    dear = prices["paper_2609_16215"].model_copy(
        update={"dram_usd_per_gb": Sourced(value=187.5, source="test", as_of="now")}
    )
    rows = study_of(with_met(cell("c"), 60))
    warehouse = published(tmp_path, rows, prices=(dear, prices["street_2026"]))
    assert found(warehouse, "A2")[:2] == (pytest.approx(73 / (9 + 64 * 0.08 / 187.5)), "differs")


def test_an_unknown_price_list_is_named(tmp_path: Path) -> None:
    street = next(p for p in reporting().prices if p.name == "street_2026")
    with pytest.raises(InputError, match="price list 'paper_2609_16215' is not one of street_2026"):
        published(tmp_path, study_of(with_met(cell("c"), 60)), prices=(street,))


def routed(traces: int, gains: list[int]) -> dict[str, object]:
    parts = []
    for trace in range(traces):
        for seed, gain in enumerate(gains):
            for routing, met in (("round_robin", 80 + trace), ("cost_model", 80 + trace + gain)):
                row = cell(
                    f"{trace}-{seed}-{routing}", stage="route", trace=f"t{trace}", routing=routing, seed=seed,
                    axes=json.dumps({"trace": f"t{trace}", "routing": routing, "seed": seed}),
                )  # fmt: skip
                parts.append(with_met(row, met))
    return study_of(*parts)


def test_the_gain_of_a_router_is_paired_and_averaged_over_traces(tmp_path: Path) -> None:
    warehouse = published(tmp_path, routed(3, [2, 4]), study="paper_routing")
    ours, verdict, _ = found(warehouse, "B1.gain")
    assert (ours, verdict) == (pytest.approx(0.03), "holds")
    low, high, seeds = query(warehouse, "select ci_low, ci_high, seeds from claims where claim_id = 'B1.gain'")[0]
    assert (low, high, seeds) == (pytest.approx(0.03 - 12.7062047 * 0.01), pytest.approx(0.03 + 12.7062047 * 0.01), 2)


@pytest.mark.parametrize(("traces", "gains"), [(2, [2, 4]), (3, [2])])
def test_too_few_traces_or_seeds_test_nothing(tmp_path: Path, traces: int, gains: list[int]) -> None:
    warehouse = published(tmp_path, routed(traces, gains), study="paper_routing")
    assert found(warehouse, "B1.gain")[:2] == (None, "cannot be tested")


def test_a_loss_differs(tmp_path: Path) -> None:
    assert found(published(tmp_path, routed(3, [-2, -4]), study="paper_routing"), "B1.gain")[1] == "differs"


def test_a_claim_that_cannot_be_judged_is_refused() -> None:
    path = "pipeline.warehouse.claims."
    blocks = {"hbm": 1, "dram": 0, "ssd": 0}
    evidence = {"_target_": f"{path}SessionsRatio", "of": blocks, "over": blocks}
    claim = {"_target_": f"{path}Claim", "claim_id": "X", "kind": "arithmetic", "statement": "s", "unit": "ratio"}
    with pytest.raises(InputError, match="needs published and tolerance"):
        build(claim | {"evidence": evidence}, "claims", Claim)


@pytest.mark.parametrize("path", sorted((CONF / "price").glob("*.yaml")), ids=lambda path: path.stem)
def test_price_lists_are_valid_and_sourced(path: Path) -> None:
    price = from_conf(f"price/{path.stem}", Price)
    assert price.name == path.stem
    assert all(item.source and item.as_of for item in (price.hbm_usd_per_gb, *price.gpu_usd_per_hour.values()))


def test_tolerances_are_tight() -> None:
    claims = from_conf("claims/papers", Claims)
    assert all(c.tolerance is None or c.tolerance <= 0.01 for paper in claims.papers for c in paper.claims)
