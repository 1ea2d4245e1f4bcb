"""Compose conf/ with Hydra: options chosen in, plain dictionaries out (only here and in settings.py is Hydra known)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_origin

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from pipeline.settings import WHOLE_NUMBERS, plain
from pipeline.spec import TARGET, InputError, class_of

SECOND_USES = {"report_slo": "slo"}
"""Groups that the configuration holds twice, by the name of the second use."""

Options = dict[str, dict[str, dict[str, Any]]]
"""Values by group and option."""


def data_folder() -> Path | None:
    """Folder that KVPLAN_DATA names, or None when it is not set; raise InputError when there is none."""
    given = os.environ.get("KVPLAN_DATA")
    if not given:
        return None
    folder = Path(given).expanduser().resolve()
    if not folder.is_dir():
        raise InputError(f"KVPLAN_DATA: given {given!r}, expected a folder; unset it to run without real traces")
    return folder


def data_path(relative: str) -> str | None:
    """Path of a data file under KVPLAN_DATA, or None when that is not set."""
    folder = data_folder()
    return str((folder / relative).resolve()) if folder else None


@dataclass(frozen=True)
class Conf:
    """The folder conf/."""

    folder: Path

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Options by folder."""
        options: dict[str, list[str]] = {}
        for file in sorted(self.folder.glob("*/*.yaml")):
            if not file.name.startswith("_"):
                options.setdefault(file.parent.name, []).append(file.stem)
        return options

    def options(self, group: str) -> list[str]:
        """Options of a group, by either of its names; none for an unknown one."""
        return self.groups.get(SECOND_USES.get(group, group), [])

    def check_option(self, group: str, option: Any) -> None:
        """Raise InputError, naming what there is, unless `option` is an option of `group`."""
        if not self.options(group):
            known = ", ".join(sorted({*self.groups, *SECOND_USES} - {"study"}) + list(WHOLE_NUMBERS))
            raise InputError(f"{group}: unknown group; expected one of {known}, or path.to.key=value")
        if str(option) not in self.options(group):
            raise InputError(f"{group}: given {option!r}, expected one of {', '.join(self.options(group))}")

    def study(self, name: str) -> Any:
        """Read a study as it stands in its file."""
        try:
            return plain(OmegaConf.to_container(OmegaConf.load(self.folder / "study" / f"{name}.yaml")), "study")
        except (OmegaConfBaseException, YAMLError) as exc:
            raise _mistake(exc) from exc

    def compose(
        self, chosen: Mapping[str, str], wanted: Mapping[str, Iterable[str]]
    ) -> tuple[dict[str, Any], dict[str, str], Options]:
        """Compose the configuration with the options `chosen` by group, and all options `wanted` beside it.

        Returns the values, the option of each group, and the values of what was wanted.
        """
        named = {group: f"{SECOND_USES[group]}@{group}" if group in SECOND_USES else group for group in chosen}
        beside = [f"+{g}@catalogue.{g}.{option}={option}" for g, options in wanted.items() for option in options]
        OmegaConf.register_new_resolver("data", data_path, replace=True)
        try:
            with initialize_config_dir(config_dir=str(self.folder.resolve()), version_base="1.3"):
                overrides = [f"{named[group]}={option}" for group, option in chosen.items()]
                config = compose("config", overrides=[*overrides, *beside], return_hydra_config=True)
            choices = {g: str(o) for g, o in config.hydra.runtime.choices.items() if g in self.groups}
            OmegaConf.set_struct(config, False)
            del config["hydra"]
            values = plain(OmegaConf.to_container(config, resolve=True, throw_on_missing=False), "")
        except (HydraException, OmegaConfBaseException, YAMLError) as exc:
            raise _mistake(exc) from exc
        catalogue = values.pop("catalogue", {})
        return values, choices, {group: catalogue.get(group, {}) for group in wanted}

    def catalogue(self, wanted: Mapping[str, Iterable[str]]) -> Options:
        """Values of all `wanted` options by group and option."""
        return self.compose({}, wanted)[2]


def _mistake(exc: Exception) -> InputError:
    return InputError("conf/: " + " ".join(line.strip() for line in str(exc).splitlines() if line.strip()))


def value_at(config: Any, key: str) -> Any:
    """Value of the dotted `key`; raise KeyError where there is none."""
    for name in key.split("."):
        if not isinstance(config, Mapping) or name not in config:
            raise KeyError(key)
        config = config[name]
    return config


def has_value(config: Any, key: str) -> bool:
    """Whether the dotted `key` exists."""
    try:
        value_at(config, key)
    except KeyError:
        return False
    return True


def with_value(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`config` with an existing dotted `key` set; raise InputError naming the keys there are when it does not exist."""
    names = key.split(".")

    def changed(node: Any, depth: int) -> Any:
        if depth == len(names):
            return value
        if not isinstance(node, Mapping) or names[depth] not in node or names[depth] == TARGET:
            where = ".".join(names[:depth]) or "the configuration"
            there = ", ".join(k for k in node if k != TARGET) if isinstance(node, Mapping) else "none, it is a value"
            hint = _own_names(config, names, value) if 0 < depth == len(names) - 1 else ""
            raise InputError(f"{key}: unknown key {names[depth]!r} in {where}; allowed: {there or 'none'}{hint}")
        return {**node, names[depth]: changed(node[names[depth]], depth + 1)}

    found: dict[str, Any] = changed(config, 0)
    return found


def _own_names(config: Any, names: Sequence[str], value: Any) -> str:
    """How to give a field of an option that takes any names one that it does not have."""
    *path, field, new = names
    owner = value_at(config, ".".join(path)) if path else None
    if not (isinstance(owner, Mapping) and TARGET in owner and isinstance(owner.get(field), Mapping)):
        return ""
    known = class_of(str(owner[TARGET]), ".".join(path)).model_fields.get(field)
    if known is None or get_origin(known.annotation) is not dict:
        return ""
    return f"; for others give them all, such as {'.'.join(names[:-1])}={{{new}:{value}}}"


def refuse_missing(config: Any, where: str = "") -> None:
    """Raise InputError for the first value still `???`, naming its key."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            refuse_missing(value, f"{where}.{key}" if where else str(key))
    elif config == "???":
        raise InputError(f"{where}: missing; give it with --config 'set={where}=VALUE'")
