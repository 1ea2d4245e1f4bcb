"""Every option in conf/ is a plug-in of its group: it builds, it is of the right kind, and a study can use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.cell import Cell
from pipeline.config import Conf
from pipeline.fidelity.runs import Runs
from pipeline.spec import InputError, Spec, build
from pipeline.values import Price
from pipeline.warehouse.claims import Claims

CONF = Conf(Path(__file__).parents[1] / "conf")
SAMPLE = Path(__file__).parent / "data" / "requests_small.csv"
GROUPS = [group for group in CONF.groups if group != "study"]
OPTIONS = [(group, option) for group in GROUPS for option in CONF.groups[group]]


@pytest.fixture(scope="session")
def catalogue() -> dict[str, dict[str, Any]]:
    return CONF.catalogue({group: CONF.groups[group] for group in GROUPS})


def _kind(group: str) -> Any:
    others = {"price": Price, "claims": Claims, "fidelity": Runs}
    kind = others.get(group) or Cell.model_fields[group].annotation
    return kind if isinstance(kind, type) else Spec


def _given(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _given(value) for key, value in values.items()}
    return str(SAMPLE) if values == "???" else values


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=[f"{g}={o}" for g, o in OPTIONS])
def test_option_builds(catalogue: dict[str, dict[str, Any]], group: str, option: str) -> None:
    values = _given(catalogue[group][option])
    built = build(values, group, _kind(group))
    assert isinstance(built, Spec)
    assert build(values, group, _kind(group)) == built


@pytest.mark.parametrize("group", GROUPS)
def test_a_misspelt_key_is_refused(catalogue: dict[str, dict[str, Any]], group: str) -> None:
    values = _given(catalogue[group][CONF.groups[group][0]])
    with pytest.raises(InputError, match="misspelt: unknown key; allowed"):
        build(values | {"misspelt": 1}, group, _kind(group))


def test_a_router_in_the_place_of_a_policy_is_refused(catalogue: dict[str, dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="eviction: given RoundRobin, expected a kind of EvictionPolicy"):
        build(catalogue["routing"]["round_robin"], "eviction", Cell.model_fields["eviction"].annotation)  # type: ignore[type-var]


def test_names_are_those_of_their_files(catalogue: dict[str, dict[str, Any]]) -> None:
    wrong = [f"{group}={option}" for group, option in OPTIONS if catalogue[group][option].get("name", option) != option]
    assert not wrong
