"""Expand a study into cells: the product of its axes, the user's settings taking the place of the study's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.config import Conf, Options, data_folder, has_value, refuse_missing, value_at, with_value
from pipeline.provenance import digest
from pipeline.settings import Setting, group_of, is_dotted, parse_setting
from pipeline.spec import InputError
from pipeline.study import NOT_IN_A_CELL, StudyFile, check_settings, read_study
from pipeline.trace_format import choose_formats

NO_DATA = "KVPLAN_DATA is not set: synthetic traffic only, no real trace (README.md, 'Your own trace')"
INDIFFERENT = {"place": ("routing",)}
"""Groups that make no difference to a stage: with one instance there is nothing to route."""
Axes = dict[str, tuple[Any, ...]]
REPLAY = "replay"


@dataclass(frozen=True)
class CellConfig:
    """One simulation to be.

    choices: option by group; axes: what the grid varied, less values that the chosen options do not take; values: the
    resolved configuration; reference: that of the cell whose simulated capacity sets this one's load.
    """

    stage: str
    choices: Mapping[str, str]
    axes: Mapping[str, Any]
    values: Mapping[str, Any]
    reference: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A study, expanded: its cells, the axes that scatter them over jobs, the report's values, remarks for the user.

    replays: the measured runs that it replays, the predictors (values) that it does so with, and the seed of what is
    trained for them; None for a study without.
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
    settings, formats = choose_formats(conf, [parse_setting(text) for text in texts])
    check_settings(conf, settings)
    study = read_study(conf, name, settings)
    settings = [s for s in settings if s.group != "study"]
    axes, remarks = _axes(study, settings)
    remarks = formats + remarks
    fixed = {s.key: s.values[0] for s in settings if not _is_axis(s, study)}
    chosen = {key: str(option) for key, option in fixed.items() if not is_dotted(key)}
    values, choices, options = conf.compose(chosen, {"price": conf.options("price"), **_wanted(axes, study)})
    prices = options.pop("price")
    for group in choices.keys() - {*NOT_IN_A_CELL}:
        options.setdefault(group, {})[choices[group]] = values[group]
    for key in fixed.keys() - chosen.keys():
        if group_of(key) not in options:
            values = with_value(values, key, fixed[key])
    inside = {key: value for key, value in fixed.items() if group_of(key) not in NOT_IN_A_CELL}
    parts = [_Parts(stage, axes[stage], options, choices, values, inside) for stage in axes]
    for setting in settings:
        if setting.is_dotted:
            _check_key(conf, setting, values, parts)
            for option in {option: None for part in parts for option in part.left_out(setting.key)}:
                remarks.append(f"{setting.key}: not set in {setting.group}={option}, which has none (0 or null)")
    _refuse_too_many(axes, values["most_cells"])
    cells = [cell for part in parts if part.stage in study.grids for cell in _cells(part, study)]
    report = {
        "slo": values["report_slo"],
        "price": values["price"],
        "prices": [prices[option] for option in sorted(prices)],
        "claims": values["claims"],
        **{
            f"reference_{group}": _reference(study, "place").get(group, choices[group])
            for group in ("eviction", "placement", "prefetch")
        },
        "reference_routing": _reference(study, "route").get("routing", choices["routing"]),
    }
    scatter = {stage: grid.scatter for stage, grid in study.grids.items()}
    replays = None
    if study.replays:
        used = [parts[-1].values({"predictor": name})[0]["predictor"] for name in axes[REPLAY]["predictor"]]
        replays = {"runs": values["fidelity"], "seed": values["train_seed"], "predictors": used}
    return Study(study.name, study.about, cells, scatter, report, tuple(dict.fromkeys(remarks)), replays)


def _is_axis(setting: Setting, study: StudyFile) -> bool:
    return setting.is_sweep or any(setting.key in grid.keys for grid in study.grids.values())


def _axes(study: StudyFile, settings: Sequence[Setting]) -> tuple[dict[str, Axes], list[str]]:
    """Axes by stage, and remarks; a setting replaces the axis of its key, or adds one where no stage has it.

    Several values are compared only where the study compares that; a single one holds in every stage it matters to.
    """
    has_data = data_folder() is not None
    mine = {s.key: s.values for s in settings if _is_axis(s, study)}
    theirs = {key for grid in study.grids.values() for key in grid.keys}

    def takes(stage: str, key: str) -> bool:
        if key in study.grids[stage].keys or key not in theirs:
            return True
        return len(mine[key]) == 1 and group_of(key) not in INDIFFERENT.get(stage, ())

    axes = {
        stage: grid.values(has_data) | {key: mine[key] for key in mine if takes(stage, key)}
        for stage, grid in study.grids.items()
    }
    if study.replays:
        chosen = next((s.values for s in settings if s.key == "predictor"), study.replays)
        axes[REPLAY] = {"predictor": tuple(dict.fromkeys(chosen))}
    lacking = not has_data and any(set(grid.axes_with_data) - set(mine) for grid in study.grids.values())
    return axes, [NO_DATA] if lacking else []


def _wanted(axes: Mapping[str, Axes], study: StudyFile) -> dict[str, list[str]]:
    """Options that the grids name, by group."""
    wanted: dict[str, dict[str, None]] = {}
    for stage, stage_axes in axes.items():
        for key, values in [*stage_axes.items(), *((k, (v,)) for k, v in _reference(study, stage).items())]:
            if not is_dotted(key):
                wanted.setdefault(key, {}).update(dict.fromkeys(map(str, values)))
    return {group: list(options) for group, options in wanted.items()}


@dataclass(frozen=True)
class _Parts:
    """What the cells of one stage are put together from: options by group, and values set inside or outside them."""

    stage: str
    axes: Axes
    options: Options
    choices: Mapping[str, str]
    outside: Mapping[str, Any]
    fixed: Mapping[str, Any]

    def named(self, group: str) -> dict[str, dict[str, Any]]:
        """Options of a group that this grid names, or the one that it leaves as it is."""
        names = self.axes.get(group, (self.choices[group],)) if group in self.options else ()
        return {str(name): self.options[group][str(name)] for name in names}

    @cached_property
    def kept_off(self) -> set[str]:
        """Keys that an option keeps at 0 or null, because another option that the grid names does not."""
        keys = {key for key in (*self.fixed, *self.axes) if is_dotted(key)}
        return {key for key in keys if any(_state(v, key) == "on" for v in self.named(group_of(key)).values())}

    def left_out(self, key: str) -> list[str]:
        """Options that have a value of `key` and keep it off."""
        named = self.named(group_of(key)) if key in self.kept_off else {}
        return [option for option, values in named.items() if _state(values, key) == "off"]

    def values(self, chosen: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """Resolved configuration with `chosen` options, then values inside them; and the keys of the values set."""
        values = {group: found[str(chosen.get(group, self.choices[group]))] for group, found in self.options.items()}
        values |= {key: self.outside[key] for key in ("seed", "train_seed")}
        used = set[str]()
        for key, value in {**self.fixed, **chosen}.items():
            if is_dotted(key) and self._takes(values, key):
                values = with_value(values, key, value)
                used.add(key)
        return values, used

    def _takes(self, values: Mapping[str, Any], key: str) -> bool:
        group = group_of(key)
        state = _state(values[group], key) if group in self.options else "on"
        return state == "on" or (state == "off" and key not in self.kept_off)


def _state(option: Mapping[str, Any], key: str) -> str:
    """Whether a value inside an option is on, off (0 or null, as the size of a tier that is not there) or lacking."""
    try:
        value = value_at({group_of(key): option}, key)
    except KeyError:
        return "lacking"
    return "off" if value is None or (value == 0 and value is not False) else "on"


def _check_key(conf: Conf, setting: Setting, values: Mapping[str, Any], parts: Sequence[_Parts]) -> None:
    """Raise InputError unless some option that the grids name has the dotted key."""
    group, key = setting.group, setting.key
    named = [option for part in parts for option in part.named(group).values()]
    if any(has_value({group: option}, key) for option in named):
        return
    try:
        with_value({group: max(named, key=len)} if named else values, key, None)
    except InputError as exc:
        catalogue = conf.catalogue({group: conf.options(group)})[group] if named else {}
        others = [option for option, found in catalogue.items() if has_value({group: found}, key)]
        raise InputError(f"{exc}; {group}={','.join(others)} has it" if others else str(exc)) from exc


def _refuse_too_many(axes: Mapping[str, Axes], most: int) -> None:
    count = sum(math.prod(len(values) for values in stage_axes.values()) for stage_axes in axes.values())
    if count > most:
        raise InputError(
            f"most_cells: the grid has {count} cells, expected at most {most}; set fewer values, or this key"
        )


def _reference(study: StudyFile, stage: str) -> Mapping[str, Any]:
    return study.grids[stage].reference if stage in study.grids else {}


def _cells(parts: _Parts, study: StudyFile) -> list[CellConfig]:
    """The product of the axes, without repeats (a value that the chosen options do not take varies nothing).

    The load of the whole grid is that of one cell: no axis of or inside an option of the reference moves it.
    """
    cells: dict[str, CellConfig] = {}
    reference = {**_reference(study, parts.stage), "seed": study.tuning_seed}
    if study.tuning_seed in parts.axes.get("seed", (parts.outside["seed"],)):
        raise InputError(
            f"seed: given {study.tuning_seed}, on whose traffic the capacity is found, so it cannot be judged; "
            "expected others, or another study.tuning_seed"
        )
    for point in itertools.product(*parts.axes.values()):
        chosen = dict(zip(parts.axes, point, strict=True))
        values, used = parts.values(chosen)
        refuse_missing(values)
        choices = {group: str(chosen.get(group, parts.choices[group])) for group in parts.options}
        varied = {key: value for key, value in chosen.items() if key in used or not is_dotted(key)}
        apart = {key: value for key, value in chosen.items() if group_of(key) not in reference}
        cell = CellConfig(parts.stage, choices, varied, values, parts.values(apart | reference)[0])
        cells.setdefault(digest(values), cell)
    return list(cells.values())
