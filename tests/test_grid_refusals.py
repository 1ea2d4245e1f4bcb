"""What no study can be is refused before anything is laid out, in one line that says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from conf_folder import FILES, conf_in

from pipeline.config import Conf
from pipeline.grid import load_study
from pipeline.spec import InputError

STUDY = FILES["study/s.yaml"]


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)
    return conf_in(tmp_path)


def _refused(conf: Conf, study: str, *settings: str) -> str:
    with pytest.raises(InputError) as caught:
        load_study(conf, study, settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


GROUPS = (
    "claims, eviction, fidelity, placement, predictor, prefetch, price, report_slo, routing, slo, tiers, trace, seed, "
    "train_seed, most_cells"
)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("eviction=lruu", "eviction: given 'lruu', expected one of lru, s3fifo"),
        ("eviction=lru,mru", "eviction: given 'mru', expected one of lru, s3fifo"),
        ("eviction=null", "eviction: given None, expected one of lru, s3fifo"),
        ("eviction=[lru]", "eviction: given ['lru'], expected one of lru, s3fifo"),
        ("evicton=lru", f"evicton: unknown group; expected one of {GROUPS}, or path.to.key=value"),
        ("hydra/launcher=basic", "hydra/launcher: unknown group"),
        ("slo.ttft=3", "slo.ttft: unknown key 'ttft' in slo; allowed: ttft_ms"),
        ("slo.ttft=3,4", "slo.ttft: unknown key 'ttft' in slo; allowed: ttft_ms"),
        ("slo.ttft_ms.x=3", "unknown key 'x' in slo.ttft_ms; allowed: none, it is a value"),
        ("seed.x=3", "seed.x: unknown key 'x' in seed; allowed: none, it is a value"),
        ("sloo.ttft=3,4", "sloo.ttft: unknown key 'sloo' in the configuration; allowed: eviction, "),
        ("eviction.small=3", "eviction.small: unknown key 'small' in eviction; allowed: kind"),
        (
            "trace.path=3",
            "trace.path: unknown key 'path' in trace; allowed: kind, session_count; trace=mine,real has it",
        ),
        ("trace=mine", "trace.path: missing; give it with --config 'set=trace.path=VALUE'"),
        ("trace._target_=x", "trace._target_: not to be set; choose another option instead, trace= one of chat, mine"),
        ("slo._target_=x,y", "slo._target_: not to be set; choose another option instead, slo= one of loose, tight"),
        ("price=paper,paper", "price: given paper,paper, expected one of paper: price is no part of a simulation"),
        (
            "report_slo=tight,loose",
            "report_slo: given tight,loose, expected one of loose, tight: report_slo is no part",
        ),
        ("report_slo=nope", "report_slo: given 'nope', expected one of loose, tight"),
        ("report_slo.ttft_ms=1,2", "report_slo.ttft_ms: given 1,2, expected one value: report_slo is no part"),
        ("report_slo.ttft=1", "report_slo.ttft: unknown key 'ttft' in report_slo; allowed: ttft_ms"),
        ("claims=none,none", "claims: given none,none, expected one of none"),
        ("most_cells=5,6", "most_cells: given 5,6, expected one value"),
        ("most_cells=4", "most_cells: the grid has 5 cells, expected at most 4"),
        ("seed=range(0,100)", "most_cells: the grid has 300 cells, expected at most 100"),
        ("seed=range(0,90000)", "most_cells: the grid has 270000 cells, expected at most 100"),
        ("seed=8,9", "seed: given 9, on whose traffic the capacity is found"),
        ("study.tuning_seed=0", "seed: given 0, on whose traffic the capacity is found"),
        ("study=s", "study: choose it with --config study=NAME"),
        ("study.tuning_seed=1,2", "study.tuning_seed: given 1,2, expected one value of study.tuning_seed, "),
        ("study.name=x", "study.name: given x, expected one value of study.tuning_seed, "),
        ("study.place.axes.seed=1", "study.place.axes.seed: given 1, expected one value of study.tuning_seed"),
        ("study.tuning_seed=-1", "study.tuning_seed: given -1: Input should be greater than or equal to 0"),
        ("study.place.scatter=3", "study.place.scatter: given 3: Input should be a valid tuple"),
        ("study.place.scatter=[nope]", "scatter: given 'nope', expected some of eviction, seed, trace, "),
        ("study.place.reference.eviction=x", "eviction: given 'x', expected one of lru, s3fifo"),
        ("fidelity.cases=/x", "fidelity.cases: study s replays no runs"),
    ],
)
def test_a_setting(conf: Conf, setting: str, message: str) -> None:
    assert message in _refused(conf, "s", setting)


@pytest.mark.parametrize(
    ("first", "second"),
    [("eviction=lru", "eviction=s3fifo"), ("seed=1", "seed=1,2"), ("slo.ttft_ms=1", "slo.ttft_ms=1")],
)
def test_a_key_given_twice(conf: Conf, first: str, second: str) -> None:
    assert f"is given twice, {first!r} and {second!r}" in _refused(conf, "s", first, second)


@pytest.mark.parametrize(
    "setting", ["seed=0", "eviction=lru", "slo.ttft_ms=1,2", "train_seed=1,2", "predictor.trees=1,2"]
)
def test_a_setting_that_would_change_nothing(conf: Conf, setting: str) -> None:
    assert "study replays has no grid of simulations; it takes one value each of" in _refused(conf, "replays", setting)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["predictor=plain,oracle"], "predictor: given 'oracle', expected one of forest, plain"),
        (
            ["predictor=plain", "predictor.trees=3"],
            "predictor.trees: unknown key 'trees' in predictor; allowed: kind; predictor=forest has it",
        ),
    ],
)
def test_a_predictor_that_no_replay_can_use(conf: Conf, settings: list[str], message: str) -> None:
    assert message in _refused(conf, "replays", *settings)


def test_a_study_that_replays_with_no_such_predictor(tmp_path: Path) -> None:
    conf = conf_in(tmp_path, study__replays="{name: replays, about: x, tuning_seed: 9, replays: [oracle]}\n")
    assert _refused(conf, "replays") == "predictor: given 'oracle', expected one of forest, plain"


def test_an_unknown_study(conf: Conf) -> None:
    for name in ("nope", "../s", "", None, True, 3, ["s"], {"s": 1}):
        assert f"study: given {name!r}, expected one of replays, s, sizes" in _refused(conf, name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "conf/study/s.yaml: expected keys and values"),
        ("name: [s", "conf/: "),
        ("about: x\ntuning_seed: 1", "study.name: missing"),
        (STUDY.replace("name: s\n", "name: t\n"), "conf/study/s.yaml: given name 't', expected that of the file, 's'"),
        (STUDY.replace("tuning_seed: 9", "tuning_seed: x"), "study.tuning_seed: given 'x'"),
        (STUDY.replace("  reference: {}\n", ""), "study.route.reference: missing"),
        (
            STUDY.replace("place:", "placing:"),
            "study.placing: unknown key; allowed: about, name, place, replays, route",
        ),
        (
            STUDY.replace("eviction: lru", "eviction: x"),
            "s.yaml, place: eviction: given 'x', expected one of lru, s3fifo",
        ),
        (STUDY.replace("[trace]", "[trac]"), "s.yaml, route: scatter: given 'trac', expected some of seed, trace"),
        (STUDY.replace('"chat,real"', '"chat,reel"'), "s.yaml, place: trace: given 'reel', expected one of chat, mine"),
        (STUDY.replace('seed: "0"', 'price: "paper"'), "s.yaml, route: price: is no part of a simulation, so no axis"),
        (
            STUDY.replace('seed: "0"', 'seed: "range(0,0)"'),
            "s.yaml, route: set: given 'seed=range(0,0)', which holds no",
        ),
        (STUDY.replace('"lru,s3fifo"', "[lru]"), "s.yaml, place: eviction: given ['lru'], expected one of"),
    ],
)
def test_a_mistake_in_a_study(tmp_path: Path, text: str, message: str) -> None:
    assert message in _refused(conf_in(tmp_path, study__s=text), "s")
