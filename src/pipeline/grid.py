"""Expand a study into cells: the product of its axes, the user's settings taking the place of the study's."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import Conf, Setting, has_value, is_dotted, parse_setting, refuse_missing, set_value
from pipeline.provenance import digest
from pipeline.spec import InputError

STAGES = ("place", "route")
NO_DATA = "KVPLAN_DATA is not set: synthetic traffic only, no real trace (README.md, 'Your own trace')"
NOT_IN_A_CELL = ("study", "price", "report_slo", "claims", "fidelity")


@dataclass(frozen=True)
class CellConfig:
    """One simulation to be.

    choices: option by group; axes: what the grid varied; values: the resolved configuration; reference: that of the
    cell whose simulated capacity sets this one's load.
    """

    stage: str
    choices: Mapping[str, str]
    axes: Mapping[str, Any]
    values: Mapping[str, Any]
    reference: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A study, expanded: its cells, the axes that scatter them over jobs, the report's values, remarks for the user.

    replays: the measured runs that it replays, with the seed of what is trained for them; None for a study without.
    """

    name: str
    about: str
    cells: Sequence[CellConfig]
    scatter: Mapping[str, Sequence[str]]
    report: Mapping[str, Any]
    remarks: Sequence[str]
    replays: Mapping[str, Any] | None = None


def load_study(conf: Conf, name: Any, texts: Sequence[str]) -> Study:
    """Compose the study `name` under the user's settings and expand its grids.

    Raises InputError, in one line, for an unknown study, group, option or key and for a value of the wrong form.
    """
    conf.check_option("study", name)
    grids = conf.study(str(name))
    axis_keys = {key for stage in STAGES for key in {**grids[stage]["axes"], **grids[stage]["axes_with_data"]}}
    settings = [parse_setting(text) for text in texts]
    for setting in settings:
        _check(conf, setting)
    base, choices = conf.base([parse_setting(f"study={name}"), *(s for s in settings if _is_base(s, axis_keys))])
    study, remarks = base["study"], list[str]()
    axes = {stage: _axes(study[stage], settings, axis_keys, remarks) for stage in STAGES}
    catalogue = conf.catalogue({"price": conf.groups["price"], **_wanted(axes, study)})
    _set_options(catalogue, base, [s for s in settings if _is_option_value(s, axis_keys)])
    mine = {s.key for s in settings}
    cells = [
        cell for stage in STAGES for cell in _cells(stage, axes[stage], study, _Sources(base, choices, catalogue, mine))
    ]
    prices = catalogue["price"]
    report = {
        "slo": base["report_slo"],
        "price": base["price"],
        "prices": [prices[option] for option in sorted(prices)],
        "claims": base["claims"],
        "reference_eviction": study["place"]["reference"].get("eviction", choices["eviction"]),
        "reference_routing": study["route"]["reference"].get("routing", choices["routing"]),
    }
    scatter = {stage: tuple(study[stage]["scatter"]) for stage in STAGES}
    replays = {"runs": base["fidelity"], "seed": base["train_seed"]} if "replays" in study else None
    return Study(study["name"], study["about"], cells, scatter, report, tuple(dict.fromkeys(remarks)), replays)


def _check(conf: Conf, setting: Setting) -> None:
    if setting.key == "study":
        raise InputError("study: choose it with --config study=NAME, not inside set")
    if not setting.is_dotted:
        for value in setting.values:
            conf.check_option(setting.key, value)


def _is_option_value(setting: Setting, axis_keys: set[str]) -> bool:
    """Whether it sets a value inside a group whose option the grid varies."""
    return setting.is_dotted and not setting.is_sweep and setting.key not in axis_keys and setting.group in axis_keys


def _is_axis(setting: Setting, axis_keys: set[str]) -> bool:
    return not setting.is_packaged and setting.group != "study" and (setting.is_sweep or setting.key in axis_keys)


def _is_base(setting: Setting, axis_keys: set[str]) -> bool:
    return not (_is_axis(setting, axis_keys) or _is_option_value(setting, axis_keys))


def _axes(
    study: Mapping[str, Any], settings: Sequence[Setting], axis_keys: set[str], remarks: list[str]
) -> dict[str, tuple[Any, ...]]:
    """Axes of one stage; a setting replaces the axis of its key, or adds one where no stage has it."""
    texts = dict(study["axes"])
    mine = {s.key: s.values for s in settings if _is_axis(s, axis_keys)}
    if os.environ.get("KVPLAN_DATA"):
        texts.update(study["axes_with_data"])
    elif set(study["axes_with_data"]) - set(mine):
        remarks.append(NO_DATA)
    axes = {key: parse_setting(f"{key}={text}").values for key, text in texts.items()}
    return axes | {key: values for key, values in mine.items() if key in axes or key not in axis_keys}


def _wanted(axes: Mapping[str, Mapping[str, Sequence[Any]]], study: Mapping[str, Any]) -> dict[str, list[str]]:
    """Options that the grids name, by group."""
    wanted: dict[str, list[str]] = {}
    for stage, stage_axes in axes.items():
        for key, values in [*stage_axes.items(), *((k, [v]) for k, v in study[stage]["reference"].items())]:
            if not is_dotted(key):
                wanted.setdefault(key, [])
                wanted[key] += [str(v) for v in values if str(v) not in wanted[key]]
    return wanted


def _set_options(catalogue: Mapping[str, Mapping[str, Any]], base: dict[str, Any], settings: Sequence[Setting]) -> None:
    """Set a value inside every option of the grid that has its key; at least one must."""
    for setting in settings:
        options = [{setting.group: option} for option in catalogue[setting.group].values()]
        having = [option for option in options if has_value(option, setting.key)]
        if not having:
            richest = max(options, key=lambda option: len(option[setting.group]))
            set_value(richest, setting.key, setting.values[0])
        for option in having:
            set_value(option, setting.key, setting.values[0])
        if has_value(base, setting.key):
            set_value(base, setting.key, setting.values[0])


@dataclass(frozen=True)
class _Sources:
    """What a cell is put together from."""

    base: Mapping[str, Any]
    choices: Mapping[str, str]
    catalogue: Mapping[str, Mapping[str, Any]]
    mine: set[str]

    def values(self, axes: Mapping[str, Any]) -> dict[str, Any]:
        """Resolved configuration with `axes` applied: options first, then values inside them."""
        values = {key: value for key, value in self.base.items() if key not in NOT_IN_A_CELL}
        for key, option in axes.items():
            if key in self.catalogue:
                values[key] = self.catalogue[key][str(option)]
        values = copy.deepcopy(values)
        for key, value in axes.items():
            if key not in self.catalogue and (key in self.mine or has_value(values, key)):
                set_value(values, key, value)
        return values


def _cells(
    stage: str, axes: Mapping[str, Sequence[Any]], study: Mapping[str, Any], sources: _Sources
) -> list[CellConfig]:
    """The product of the axes, without repeats (a study's value axis that an option lacks varies nothing)."""
    cells: dict[str, CellConfig] = {}
    fixed = {**study[stage]["reference"], "seed": study["tuning_seed"]}
    for point in itertools.product(*axes.values()):
        chosen = dict(zip(axes, point, strict=True))
        values = sources.values(chosen)
        refuse_missing(values, "")
        options = {**sources.choices, **{key: str(value) for key, value in chosen.items() if key in sources.catalogue}}
        choices = {group: option for group, option in options.items() if group in values}
        cell = CellConfig(stage, choices, chosen, values, sources.values(chosen | fixed))
        cells.setdefault(digest(values), cell)
    return list(cells.values())
