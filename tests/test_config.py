"""Settings, options and grids: what is refused is refused in one line that says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import Conf, parse_setting, set_value, split_settings
from pipeline.grid import NO_DATA, load_study
from pipeline.spec import InputError

FILES = {
    "config.yaml": (
        "defaults: [eviction: lru, routing: rr, trace: chat, slo: tight, slo@report_slo: tight, price: paper, "
        "claims: none, study: s, _self_]\n"
        "seed: 0\ntrain_seed: 0\n"
    ),
    "routing/rr.yaml": "kind: rr\n",
    "eviction/lru.yaml": "kind: lru\n",
    "eviction/s3fifo.yaml": "kind: s3fifo\nsmall_queue_ratio: 0.1\n",
    "trace/chat.yaml": "kind: chat\nsession_count: 10\n",
    "trace/real.yaml": "kind: real\npath: ${data:traces/x.gz}\n",
    "trace/mine.yaml": "kind: mine\npath: ???\n",
    "slo/tight.yaml": "ttft_ms: 1\n",
    "price/paper.yaml": "usd: 1\n",
    "claims/none.yaml": "papers: []\n",
    "study/s.yaml": """
name: s
about: a study
tuning_seed: 9
place:
  axes: {trace: chat, eviction: "lru,s3fifo", trace.session_count: "10", seed: "range(0,2)"}
  axes_with_data: {trace: "chat,real"}
  reference: {eviction: lru}
  scatter: [eviction]
route:
  axes: {trace: chat, seed: "0"}
  axes_with_data: {}
  reference: {}
  scatter: [trace]
""",
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Conf(tmp_path)


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
    assert not {"study", "price", "report_slo"} & set(place[0].values)
    assert study.remarks == (NO_DATA,)


def test_data_adds_its_axes(conf: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_DATA", "/somewhere")
    study = load_study(conf, "s", [])
    real = [c for c in study.cells if c.choices["trace"] == "real"]
    assert len(real) == 4
    assert real[0].values["trace"]["path"] == "/somewhere/traces/x.gz"
    assert "session_count" not in real[0].values["trace"]
    assert study.remarks == ()


def _place(conf: Conf, *texts: str) -> list[dict[str, object]]:
    return [dict(c.values) for c in load_study(conf, "s", texts).cells if c.stage == "place"]


def test_a_setting_replaces_the_axis_of_its_key(conf: Conf) -> None:
    assert len(_place(conf, "eviction=s3fifo")) == 2
    assert len(_place(conf, "seed=range(0,5)")) == 10
    assert len(load_study(conf, "s", ["seed=3"]).cells) == 3


def test_a_sweep_on_another_key_is_a_new_axis(conf: Conf) -> None:
    cells = _place(conf, "slo.ttft_ms=1,2,3")
    assert len(cells) == 12
    assert {c["slo"]["ttft_ms"] for c in cells} == {1, 2, 3}  # type: ignore[index]


def test_a_value_inside_a_varied_option(conf: Conf) -> None:
    ratios = [c["eviction"].get("small_queue_ratio") for c in _place(conf, "eviction.small_queue_ratio=0.3")]  # type: ignore[attr-defined]
    assert ratios == [None, None, 0.3, 0.3]


def test_the_report_alone(conf: Conf) -> None:
    before, after = load_study(conf, "s", []), load_study(conf, "s", ["report_slo.ttft_ms=7"])
    assert [c.values for c in before.cells] == [c.values for c in after.cells]
    assert after.report == before.report | {"slo": {"ttft_ms": 7}}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("eviction=lruu", "eviction: given 'lruu', expected one of lru, s3fifo"),
        (
            "evicton=lru",
            "evicton: unknown group; expected one of claims, eviction, price, routing, slo, study, trace, seed",
        ),
        ("eviction=lru,mru", "eviction: given 'mru', expected one of lru, s3fifo"),
        ("slo.ttft=3", "slo.ttft: unknown key 'ttft' in slo; allowed: ttft_ms"),
        ("slo.ttft_ms.x=3", "unknown key 'x' in slo.ttft_ms; allowed: none, it is a value"),
        ("eviction.small=3", "eviction.small: unknown key 'small' in eviction; allowed: kind"),
        ("study=s", "study: choose it with --config study=NAME"),
        ("+x=1", "no + or ~"),
        ("just text", "expected group=option or path.to.key=value"),
        ("seed=range(a,b)", "set: given 'seed=range(a,b)'"),
        ("trace=mine", "trace.path: missing; give it with --config 'set=trace.path=VALUE'"),
        ("slo._target_=os.system", "unknown key '_target_'"),
    ],
)
def test_mistakes_take_one_line(conf: Conf, setting: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(conf, "s", [setting])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_study(conf: Conf) -> None:
    with pytest.raises(InputError, match="study: given 'nope', expected one of s"):
        load_study(conf, "nope", [])


@pytest.mark.parametrize("value", [3, True, ["eviction=lru"], {"eviction": "lru"}])
def test_set_must_be_text(value: object) -> None:
    with pytest.raises(InputError, match="which is not text"):
        split_settings(value)


def test_set_is_split_as_a_shell_would() -> None:
    assert split_settings(None) == split_settings("") == []
    assert split_settings("a=1 'b=\"x y\"'") == ["a=1", 'b="x y"']
    with pytest.raises(InputError, match="No closing quotation"):
        split_settings("a='1")


def test_parse_and_set() -> None:
    assert parse_setting("a.b=1,2").values == (1, 2)
    config = {"a": {"b": 1}}
    set_value(config, "a.b", 2)
    assert config == {"a": {"b": 2}}
