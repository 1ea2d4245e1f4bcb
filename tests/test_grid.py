"""A study becomes cells: the product of its axes, with the user's settings where the options take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conf_folder import conf_in

from pipeline.config import Conf
from pipeline.grid import NO_DATA, CellConfig, load_study

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)
    return conf_in(tmp_path)


def _place(conf: Conf, *texts: str, study: str = "s") -> list[CellConfig]:
    return [c for c in load_study(conf, study, texts).cells if c.stage == "place"]


def _tiers(cells: list[CellConfig], key: str = "dram") -> list[tuple[str, Any]]:
    return [(c.choices["tiers"], c.values["tiers"][key]) for c in cells]


def test_the_grid_is_the_product_of_its_axes(conf: Conf) -> None:
    study = load_study(conf, "s", [])
    place = [c for c in study.cells if c.stage == "place"]
    assert [(c.choices["eviction"], c.values["seed"]) for c in place] == [
        ("lru", 0),
        ("lru", 1),
        ("s3fifo", 0),
        ("s3fifo", 1),
    ]
    assert place[2].values["eviction"] == {"kind": "s3fifo", "small_queue_ratio": 0.1}
    assert place[2].reference["eviction"] == {"kind": "lru"}
    assert place[2].reference["seed"] == 9
    groups = {"eviction", "placement", "prefetch", "routing", "predictor", "trace", "tiers", "slo"}
    assert set(place[0].values) == groups | {"seed", "train_seed"}
    assert study.remarks == (NO_DATA,)


def test_data_adds_its_axes(conf: Conf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_DATA", str(tmp_path))
    study = load_study(conf, "s", [])
    real = [c for c in study.cells if c.choices["trace"] == "real"]
    assert len(real) == 4
    assert real[0].values["trace"]["path"] == str(tmp_path.resolve() / "traces/x.gz")
    assert "session_count" not in real[0].values["trace"]
    assert study.remarks == ()


def test_what_an_option_does_not_take_is_not_among_its_axes(
    conf: Conf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPLAN_DATA", str(tmp_path))
    varied = {c.choices["trace"]: set(c.axes) for c in _place(conf)}
    assert varied["chat"] - varied["real"] == {"trace.session_count"}


def test_a_setting_replaces_the_axis_of_its_key(conf: Conf) -> None:
    assert len(_place(conf, "eviction=s3fifo")) == 2
    assert len(_place(conf, "seed=range(0,5)")) == 10
    assert len(load_study(conf, "s", ["seed=3"]).cells) == 3


def test_a_sweep_on_another_key_is_a_new_axis(conf: Conf) -> None:
    cells = _place(conf, "slo.ttft_ms=1,2,3")
    assert len(cells) == 12
    assert {c.values["slo"]["ttft_ms"] for c in cells} == {1, 2, 3}
    assert {c.choices["slo"] for c in _place(conf, "slo=tight,loose")} == {"tight", "loose"}


@pytest.mark.parametrize(
    ("setting", "expected"), [("0.3", [None, None, 0.3, 0.3]), ("0.3,0.4", [None, None, 0.3, 0.3, 0.4, 0.4])]
)
def test_a_value_is_set_in_the_options_that_have_it(conf: Conf, setting: str, expected: list[float | None]) -> None:
    cells = sorted(_place(conf, f"eviction.small_queue_ratio={setting}"), key=lambda c: str(c.values["eviction"]))
    assert [c.values["eviction"].get("small_queue_ratio") for c in cells] == expected
    # one value is not varied; where several are, the options that take them say so
    assert ["eviction.small_queue_ratio" in c.axes for c in cells] == [
        "," in setting and ratio is not None for ratio in expected
    ]


def test_an_option_without_a_tier_stays_without(conf: Conf) -> None:
    one = load_study(conf, "sizes", ["tiers.dram=256"])
    assert _tiers(list(one.cells)) == [("hbm", 0), ("dram", 256)]
    assert one.remarks == ("tiers.dram: not set in tiers=hbm, which has none (0 or null)",)
    several = load_study(conf, "sizes", ["tiers.dram=256,512"])
    assert _tiers(list(several.cells)) == [("hbm", 0), ("dram", 256), ("dram", 512)]
    assert [c.axes.get("tiers.dram") for c in several.cells] == [None, 256, 512]


def test_what_no_option_has_yet_is_set_in_all(conf: Conf) -> None:
    assert _tiers(_place(conf, "tiers.hbm=8", study="sizes"), "hbm") == [("hbm", 8), ("dram", 8)]
    assert _tiers(_place(conf, "tiers=hbm", "tiers.dram=8", study="sizes")) == [("hbm", 8)]


def test_no_is_a_value_as_any(conf: Conf) -> None:
    assert _tiers(_place(conf, "tiers.is_fast=true", study="sizes"), "is_fast") == [("hbm", True), ("dram", True)]


def test_sizes_that_are_compared_share_one_load(conf: Conf) -> None:
    """Swept sizes leave the reference as it stands; one size for all is that of the reference too."""
    swept = _place(conf, "tiers.dram=256,512", study="sizes")
    assert [c.reference["tiers"]["dram"] for c in swept] == [128, 128, 128]
    assert [c.reference["tiers"]["dram"] for c in _place(conf, "tiers.dram=256", study="sizes")] == [256, 256]
    assert [c.reference["slo"]["ttft_ms"] for c in _place(conf, "slo.ttft_ms=1,2", study="sizes")] == [1, 2, 1, 2]


def test_options_that_only_the_user_varies_are_as_good(conf: Conf) -> None:
    cells = _place(conf, "tiers=hbm,both", "tiers.dram=256", "eviction=lru", "seed=0")
    assert _tiers(cells) == [("hbm", 0), ("both", 256)]


def test_repeats_are_one_cell(conf: Conf) -> None:
    assert len(_place(conf, "eviction=lru,lru", "seed=1,1")) == 1
    assert len(_place(conf, "slo.ttft_ms=5,5.0")) == 4


def test_the_report_alone(conf: Conf) -> None:
    before, after = load_study(conf, "s", []), load_study(conf, "s", ["report_slo.ttft_ms=7"])
    assert [c.values for c in before.cells] == [c.values for c in after.cells]
    assert after.report == before.report | {"slo": {"ttft_ms": 7}}
    assert load_study(conf, "s", ["report_slo=loose"]).report["slo"] == {"ttft_ms": 9}


def test_a_study_may_simulate_nothing(conf: Conf) -> None:
    study = load_study(conf, "replays", ["fidelity.cases=/x", "train_seed=3", "report_slo=loose"])
    assert not study.cells
    assert study.replays == {"runs": {"cases": "/x"}, "seed": 3, "predictors": [{"kind": "forest", "trees": 9}]}


def test_runs_are_replayed_with_each_predictor_that_is_set(conf: Conf) -> None:
    def predictors(*texts: str) -> list[dict[str, Any]]:
        return (load_study(conf, "replays", texts).replays or {})["predictors"]

    assert predictors("predictor=plain") == [{"kind": "plain"}]
    assert predictors("predictor=plain,forest,plain", "predictor.trees=5") == [
        {"kind": "plain"},
        {"kind": "forest", "trees": 5},
    ]


def test_what_of_a_study_may_be_set(conf: Conf) -> None:
    cells = _place(conf, "study.tuning_seed=5", "study.place.reference.eviction=s3fifo")
    assert {(c.reference["seed"], c.reference["eviction"]["kind"]) for c in cells} == {(5, "s3fifo")}
    assert load_study(conf, "s", ["study.place.scatter=[seed,tiers]"]).scatter["place"] == ("seed", "tiers")


def test_a_single_value_holds_in_the_other_stage_too_several_only_where_they_are_compared() -> None:
    def route(*texts: str) -> list[CellConfig]:
        return [c for c in load_study(Conf(ROOT / "conf"), "smoke", texts).cells if c.stage == "route"]

    whole = len(route())
    assert {c.choices["tiers"] for c in route("tiers=hbm_only")} == {"hbm_only"}
    assert {c.reference["tiers"]["name"] for c in route("tiers=hbm_only")} == {"hbm_only"}
    assert len(route("eviction=fifo")) == whole
    assert {c.choices["eviction"] for c in route("eviction=fifo,sieve")} == {"lru"}
    place = [c for c in load_study(Conf(ROOT / "conf"), "smoke", ["routing=cost_model"]).cells if c.stage == "place"]
    assert {c.choices["routing"] for c in place} == {"round_robin"}, "one instance: nothing to route"
