"""Compose conf/ with Hydra: options, overrides and sweeps in, plain dictionaries out (only here is Hydra known)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Transformer
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.spec import InputError

TOP_LEVEL_VALUES = ("seed", "train_seed")
SECOND_USES = {"report_slo": "slo"}
"""Groups that the configuration holds twice, by the name of the second use."""


@dataclass(frozen=True)
class Setting:
    """One override of the user: a group or dotted key, and the value or values (a sweep) it gets."""

    text: str
    key: str
    values: tuple[Any, ...]
    is_sweep: bool
    is_packaged: bool

    @property
    def group(self) -> str:
        """First part of the key."""
        return self.key.split(".")[0]

    @property
    def is_dotted(self) -> bool:
        """Whether a value is set, rather than an option chosen."""
        return is_dotted(self.key)


def is_dotted(key: str) -> bool:
    """Whether `key` names a value, rather than a group of options."""
    return "." in key or key in TOP_LEVEL_VALUES


def split_settings(text: Any) -> list[str]:
    """Split the value of `--config set=...`; raise InputError when it is not text or quotes do not close."""
    if text is None:  # what Snakemake makes of an empty value
        return []
    if not isinstance(text, str):
        raise InputError(f"set: given {text!r}, which is not text; write --config 'set=group=option path.to.key=value'")
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise InputError(f"set: given {text!r}: {exc}") from exc


def parse_setting(text: str) -> Setting:
    """Read `key=value`, `group=option` or a sweep `key=a,b` in Hydra's grammar; raise InputError for anything else."""
    second, _, option = text.partition("=")
    if second in SECOND_USES:
        text = f"{SECOND_USES[second]}@{second}={option}"
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as exc:
        reason = str(exc).strip().splitlines()[0]
        raise InputError(f"set: given {text!r}, expected group=option or path.to.key=value ({reason})") from exc
    if override.is_add() or override.is_delete() or override.is_force_add():
        raise InputError(f"set: given {text!r}; only group=option and path.to.key=value are offered, no + or ~")
    values = tuple(_values(override))
    return Setting(text, override.key_or_group, values, override.is_sweep_override(), override.package is not None)


def _values(override: Override) -> Iterable[Any]:
    if not override.is_sweep_override():
        return [override.value()]
    try:
        return list(override.sweep_iterator(transformer=Transformer.identity))
    except (ValueError, HydraException) as exc:
        raise InputError(f"set: given {override.input_line!r}: {exc}") from exc


def data_path(relative: str) -> str | None:
    """Path of a data file under KVPLAN_DATA, or None when that is not set."""
    folder = os.environ.get("KVPLAN_DATA")
    return str(Path(folder, relative)) if folder else None


@dataclass(frozen=True)
class Conf:
    """The folder conf/."""

    folder: Path

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Options by group."""
        options: dict[str, list[str]] = {}
        for file in sorted(self.folder.glob("*/*.yaml")):
            if not file.name.startswith("_"):
                options.setdefault(file.parent.name, []).append(file.stem)
        return options

    def check_option(self, group: str, option: Any) -> None:
        """Raise InputError, naming what there is, unless `option` is an option of `group`."""
        if group not in self.groups:
            known = ", ".join([*self.groups, *TOP_LEVEL_VALUES])
            raise InputError(f"{group}: unknown group; expected one of {known}, or path.to.key=value")
        if str(option) not in self.groups[group]:
            raise InputError(f"{group}: given {option!r}, expected one of {', '.join(self.groups[group])}")

    def study(self, name: str) -> dict[str, Any]:
        """Read a study as it stands in its file, before any setting."""
        found = OmegaConf.to_container(OmegaConf.load(self.folder / "study" / f"{name}.yaml"))
        assert isinstance(found, dict)
        return {str(key): value for key, value in found.items()}

    def base(self, settings: Sequence[Setting]) -> tuple[dict[str, Any], dict[str, str]]:
        """Compose the base configuration; return it resolved, with the chosen option of each group.

        Dotted settings are applied afterwards, so that a misspelt key is explained with the keys there are.
        """
        config, choices = self._compose([s.text for s in settings if not s.is_dotted])
        for setting in settings:
            if setting.is_dotted:
                set_value(config, setting.key, setting.values[0])
        return config, choices

    def catalogue(self, wanted: Mapping[str, Iterable[str]]) -> dict[str, dict[str, Any]]:
        """Compose all `wanted` options (by group) at once; return group -> option -> values."""
        overrides = [f"+{g}@catalogue.{g}.{option}={option}" for g, options in wanted.items() for option in options]
        if not overrides:
            return {}
        config, _ = self._compose(overrides)
        found: dict[str, dict[str, Any]] = config["catalogue"]
        return found

    def _compose(self, overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        OmegaConf.register_new_resolver("data", data_path, replace=True)
        try:
            with initialize_config_dir(config_dir=str(self.folder.resolve()), version_base="1.3"):
                config = compose("config", overrides=list(overrides), return_hydra_config=True)
            choices = {g: str(o) for g, o in config.hydra.runtime.choices.items() if not g.startswith("hydra/")}
            OmegaConf.set_struct(config, False)
            del config["hydra"]
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
        except (HydraException, OmegaConfBaseException) as exc:
            reason = " ".join(line.strip() for line in str(exc).splitlines() if line.strip())
            raise InputError(f"conf/: {reason}") from exc
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}, choices


def has_value(config: Any, key: str) -> bool:
    """Whether the dotted `key` exists."""
    for name in key.split("."):
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def set_value(config: dict[str, Any], key: str, value: Any) -> None:
    """Set an existing dotted `key`; raise InputError naming the keys there are when it does not exist."""
    names = key.split(".")
    node: Any = config
    for depth, name in enumerate(names):
        if not isinstance(node, dict) or name not in node or name == "_target_":
            where = ".".join(names[:depth]) or "the configuration"
            there = ", ".join(k for k in node if k != "_target_") if isinstance(node, dict) else "none, it is a value"
            raise InputError(f"{key}: unknown key {name!r} in {where}; allowed: {there}")
        if depth < len(names) - 1:
            node = node[name]
    node[names[-1]] = value


def refuse_missing(config: Any, where: str) -> None:
    """Raise InputError for the first value still `???`, naming its key."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            refuse_missing(value, f"{where}.{key}" if where else str(key))
    elif config == "???":
        raise InputError(f"{where}: missing; give it with --config 'set={where}=VALUE'")
