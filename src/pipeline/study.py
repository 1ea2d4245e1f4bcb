"""A study as its file in conf/study says it, and what the user may set: read and checked, not yet expanded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.config import Conf, with_value
from pipeline.settings import Setting, is_dotted, parse_setting
from pipeline.spec import TARGET, InputError, Seed, Spec, build

STAGES = ("place", "route")
NOT_IN_A_CELL = ("price", "report_slo", "claims", "fidelity", "most_cells")
TAKEN_WITHOUT_GRID = ("fidelity", "train_seed", "price", "report_slo", "claims")
SETTABLE = ("study.tuning_seed", *(f"study.{stage}.{part}" for stage in STAGES for part in ("reference", "scatter")))


class StageGrid(Spec):
    """What one stage varies.

    axes: values by group or dotted key, as text in Hydra's sweep grammar; axes_with_data: those that take their place
    where KVPLAN_DATA is set. reference: options of the cell whose simulated capacity sets the load of the whole grid.
    scatter: the axes of which each value is a job of its own.
    """

    axes: dict[str, Any]
    axes_with_data: dict[str, Any]
    reference: dict[str, Any]
    scatter: tuple[str, ...]

    @property
    def keys(self) -> set[str]:
        """Everything that it may vary."""
        return {*self.axes, *self.axes_with_data}

    def values(self, with_data: bool) -> dict[str, tuple[Any, ...]]:
        """Values by axis."""
        return {s.key: s.values for s in _parsed(self.axes | (self.axes_with_data if with_data else {}))}


class StudyFile(Spec):
    """A study: the grid of each stage that simulates, and the predictors, if any, that real runs are replayed with."""

    name: str
    about: str
    tuning_seed: Seed
    place: StageGrid | None = None
    route: StageGrid | None = None
    replays: tuple[str, ...] = ()

    @property
    def grids(self) -> dict[str, StageGrid]:
        """Its grids by stage."""
        return {stage: grid for stage in STAGES if (grid := getattr(self, stage)) is not None}


def read_study(conf: Conf, name: Any, settings: Sequence[Setting]) -> StudyFile:
    """Read the study `name` with those of the `settings` that change it. Raises InputError for whatever cannot be."""
    conf.check_option("study", name)
    where = f"conf/study/{name}.yaml"
    given = {"study": conf.study(str(name))}
    if not isinstance(given["study"], Mapping):
        raise InputError(f"{where}: expected keys and values, as conf/study/default.yaml has them")
    for setting in settings:
        if setting.group == "study":
            given = with_value(given, setting.key, setting.values[0])
    study = build({TARGET: f"{__name__}.StudyFile", **given["study"]}, "study", StudyFile)
    if study.name != str(name):
        raise InputError(f"{where}: given name {study.name!r}, expected that of the file, {str(name)!r}")
    for stage, grid in study.grids.items():
        try:
            _check_grid(conf, grid)
        except InputError as exc:
            raise InputError(f"{where}, {stage}: {exc}") from exc
    for predictor in study.replays:
        conf.check_option("predictor", predictor)
    for setting in settings:
        _check_effect(study, setting)
    return study


def check_settings(conf: Conf, settings: Sequence[Setting]) -> None:
    """Raise InputError for the first setting that no study can take."""
    seen: dict[str, Setting] = {}
    for setting in settings:
        if setting.key in seen:
            raise InputError(f"set: {setting.key} is given twice, {seen[setting.key].text!r} and {setting.text!r}")
        seen[setting.key] = setting
        if setting.group == "study":
            _check_settable(setting)
        elif TARGET in setting.key.split(".") and conf.options(setting.group):
            options = ", ".join(conf.options(setting.group))
            raise InputError(
                f"{setting.key}: not to be set; choose another option instead, {setting.group}= one of {options}"
            )
        else:
            _check_options(conf, setting)


def _check_grid(conf: Conf, grid: StageGrid) -> None:
    for setting in (*_parsed(grid.axes), *_parsed(grid.axes_with_data), *_parsed(grid.reference)):
        if setting.group in NOT_IN_A_CELL:
            raise InputError(f"{setting.key}: is no part of a simulation, so no axis")
        _check_options(conf, setting)
    for key in grid.scatter:
        if key not in grid.keys and (is_dotted(key) or not conf.options(key) or key in NOT_IN_A_CELL):
            raise InputError(f"scatter: given {key!r}, expected some of {', '.join(sorted(grid.keys))}")


def _check_options(conf: Conf, setting: Setting) -> None:
    if not setting.is_dotted:
        for value in setting.values:
            conf.check_option(setting.key, value)
    if setting.is_sweep and setting.group in NOT_IN_A_CELL:
        one = "one value" if setting.is_dotted else f"one of {', '.join(conf.options(setting.key))}"
        raise InputError(
            f"{setting.key}: given {setting.given}, expected {one}: {setting.group} is no part of a simulation, so a "
            "study has one at a time; run it again with another"
        )


def _check_settable(setting: Setting) -> None:
    if not setting.is_dotted:
        raise InputError("study: choose it with --config study=NAME, not inside set")
    if setting.is_sweep or not any(f"{setting.key}.".startswith(f"{key}.") for key in SETTABLE):
        raise InputError(
            f"{setting.key}: given {setting.given}, expected one value of {', '.join(SETTABLE)}; what a study varies "
            "is set by its own key, as seed=0,1, and another study is a file conf/study/NAME.yaml"
        )


def _check_effect(study: StudyFile, setting: Setting) -> None:
    """Raise InputError for a setting that nothing of the study can depend on."""
    if setting.group == "fidelity" and not study.replays:
        raise InputError(f"{setting.key}: study {study.name} replays no runs, so this changes nothing")
    is_taken = setting.group in (*TAKEN_WITHOUT_GRID, "predictor") and not setting.is_sweep
    if not (study.grids or is_taken or setting.key == "predictor"):
        raise InputError(
            f"{setting.key}: given {setting.given}, but study {study.name} has no grid of simulations; it takes one "
            f"value each of {', '.join(TAKEN_WITHOUT_GRID)}, and one or more of predictor"
        )


def _parsed(texts: Mapping[str, Any]) -> Iterator[Setting]:
    return (parse_setting(f"{key}={text}") for key, text in texts.items())
