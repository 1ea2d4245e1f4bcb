"""Settings as text become keys and values, and conf/ becomes plain values; what is wrong takes one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from conf_folder import conf_in

from pipeline.config import Conf, data_folder, has_value, value_at, with_value
from pipeline.settings import MOST_VALUES, parse_setting, plain, split_settings
from pipeline.spec import InputError


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conf:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)
    return conf_in(tmp_path)


@pytest.mark.parametrize("value", [3, True, ["eviction=lru"], {"eviction": "lru"}])
def test_set_must_be_text(value: object) -> None:
    with pytest.raises(InputError, match="which is not text"):
        split_settings(value)


def test_set_is_split_as_a_shell_would() -> None:
    assert split_settings(None) == split_settings("") == []
    assert split_settings("a=1 'b=\"x y\"'") == ["a=1", 'b="x y"']
    with pytest.raises(InputError, match="No closing quotation"):
        split_settings("a='1")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1", (1,)),
        ("a.b=1,2", (1, 2)),
        ("a.b=x,'y z'", ("x", "y z")),
        ("a.b=[1.0,2.5]", ([1, 2.5],)),
        ("a.b={c:1e3}", ({"c": 1000},)),
        ("a.b=128e9", (128_000_000_000,)),
        ("a.b=0.5,1.0", (0.5, 1)),
        ("a.b=range(0,3)", (0, 1, 2)),
        ("a.b=range(0,1,0.5)", (0, 0.5)),
        ("a.b=null", (None,)),
        ("seed=1e3", (1000,)),
    ],
)
def test_a_setting_has_values_in_their_one_form(text: str, values: tuple[object, ...]) -> None:
    found = parse_setting(text)
    assert found.values == values
    assert [type(v) for v in found.values] == [type(v) for v in values]
    assert found.key == text.partition("=")[0]
    assert found.is_sweep == (len(values) > 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b=nan", "a.b: given nan, expected a finite number"),
        ("a.b=-inf", "a.b: given -inf, expected a finite number"),
        ("a.b=1e400", "a.b: given inf, expected a finite number"),
        ("a.b=1,nan", "a.b: given nan, expected a finite number"),
        ("a.b=[{c:inf}]", "a.b.c: given inf, expected a finite number"),
        ("seed=-1", "seed: given -1, expected a whole number from 0 to 9223372036854775807"),
        ("seed=0,-1", "seed: given -1, expected a whole number"),
        ("seed=0.5", "seed: given 0.5, expected a whole number"),
        ("seed=true", "seed: given True, expected a whole number"),
        ("seed=9223372036854775808", "seed: given 9223372036854775808, expected a whole number"),
        ("train_seed=4294967296", "train_seed: given 4294967296, expected a whole number from 0 to 4294967295"),
        ("seed=range(0,0)", "given 'seed=range(0,0)', which holds no value"),
        ("seed=range(3,1)", "which holds no value"),
        ("seed=range(0,100000000)", "which holds more than 100000 values"),
        ("seed=shuffle(range(0,100000000))", "which holds more than 100000 values"),
        ("seed=range(0,inf)", "which holds more than 100000 values"),
        ("seed=range(0,nan)", "given 'seed=range(0,nan)', expected group=option"),
        ("seed=range(0,3,0)", "given 'seed=range(0,3,0)', expected group=option"),
        ("seed=range(a,b)", "given 'seed=range(a,b)', expected group=option"),
        ("eviction=glob(*)", "given 'eviction=glob(*)', expected group=option"),
        ("slo.x=interval(0,1)", "given 'slo.x=interval(0,1)', expected group=option"),
        ("eviction=lru,", "given 'eviction=lru,', expected group=option"),
        ("just text", "expected group=option or path.to.key=value"),
        ("=b", "given '=b', expected group=option"),
        ("trace.path=/é.csv", "text of other signs takes two pairs of quotes"),
        ("slo@report_slo=tight", "no +, ~ or @"),
        ("+x=1", "no +, ~ or @"),
        ("~eviction", "no +, ~ or @"),
    ],
)
def test_what_is_no_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_setting(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_longest_sweep() -> None:
    assert len(parse_setting(f"seed=range(0,{MOST_VALUES})").values) == MOST_VALUES


def test_a_file_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "link.csv").symlink_to("a.csv")
    for given in ("a.csv", "./a.csv", "link.csv", "'~/a.csv'", f"{tmp_path}/x/../a.csv"):
        assert parse_setting(f"trace.path={given}").values == (str((tmp_path / "a.csv").resolve()),)
    assert parse_setting("trace.path=''").values == ("",)
    assert parse_setting("slo.name=a.csv").values == ("a.csv",)


def test_plain_leaves_what_a_whole_number_would_change() -> None:
    assert plain({"a": [1.5, True, "1.0", 2.0**60]}, "") == {"a": [1.5, True, "1.0", 2.0**60]}
    assert isinstance(plain(2.0**60, ""), float)
    assert isinstance(plain(True, ""), bool)


def test_setting_a_value_copies_only_its_path() -> None:
    config = {"a": {"b": 1, "_target_": "x"}, "c": {"d": 2}}
    changed = with_value(config, "a.b", 2)
    assert changed == {"a": {"b": 2, "_target_": "x"}, "c": {"d": 2}}
    assert config["a"]["b"] == 1
    assert changed["c"] is config["c"]
    assert value_at(changed, "a.b") == 2
    assert has_value(config, "c.d")
    assert not has_value(config, "c.d.e")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("a.x", "a.x: unknown key 'x' in a; allowed: b"),
        ("x", "x: unknown key 'x' in the configuration; allowed: a, c"),
        ("a.b.x", "a.b.x: unknown key 'x' in a.b; allowed: none, it is a value"),
        ("c.x", "c.x: unknown key 'x' in c; allowed: none"),
        ("a._target_", "a._target_: unknown key '_target_' in a; allowed: b"),
    ],
)
def test_a_key_that_is_not_there(key: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        with_value({"a": {"b": 1, "_target_": "x"}, "c": {"_target_": "y"}}, key, 0)
    assert str(caught.value) == message


def test_a_field_of_any_names_says_how_to_give_one() -> None:
    runs = {"_target_": "pipeline.fidelity.runs.Runs", "systems": {"H100": "h100_sxm"}, "skew_forest": {"trees": 6}}
    with pytest.raises(InputError) as caught:
        with_value({"fidelity": runs}, "fidelity.systems.RTX4090", "l40s")
    assert str(caught.value) == (
        "fidelity.systems.RTX4090: unknown key 'RTX4090' in fidelity.systems; allowed: H100; for others give them all, "
        "such as fidelity.systems={RTX4090:l40s}"
    )
    with pytest.raises(InputError, match=r"allowed: trees$"):
        with_value({"fidelity": runs}, "fidelity.skew_forest.tree", 1)


def test_conf_composes_choices_and_what_is_wanted_beside_them(conf: Conf) -> None:
    values, choices, options = conf.compose({"report_slo": "loose", "tiers": "dram"}, {"eviction": ["lru", "s3fifo"]})
    assert (values["slo"], values["report_slo"], values["tiers"]["name"]) == ({"ttft_ms": 1}, {"ttft_ms": 9}, "dram")
    assert (choices["slo"], choices["tiers"]) == ("tight", "dram")
    assert options == {"eviction": {"lru": {"kind": "lru"}, "s3fifo": {"kind": "s3fifo", "small_queue_ratio": 0.1}}}


def test_a_mistake_in_a_file_takes_one_line(tmp_path: Path) -> None:
    for text in ("a: [1\nb: 2\n", "ttft_ms: .nan\n", "ttft_ms: ${nowhere}\n"):
        with pytest.raises(InputError) as caught:
            conf_in(tmp_path, slo__tight=text).compose({}, {})
        assert "\n" not in str(caught.value)


def test_an_option_is_named_by_its_group(conf: Conf) -> None:
    with pytest.raises(InputError, match="report_slo: given 'nope', expected one of loose, tight"):
        conf.check_option("report_slo", "nope")


def test_the_folder_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)
    assert data_folder() is None
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("KVPLAN_DATA", tmp_path.name)
    assert data_folder() == tmp_path.resolve()
    monkeypatch.setenv("KVPLAN_DATA", "/nonexistent")
    with pytest.raises(InputError, match="KVPLAN_DATA: given '/nonexistent', expected a folder"):
        data_folder()
