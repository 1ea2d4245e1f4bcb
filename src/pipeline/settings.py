"""Read the user's settings and a study's axes: text in Hydra's override grammar in, keys and their values out."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString, RangeSweep
from hydra.errors import HydraException

from pipeline.spec import InputError

WHOLE_NUMBERS = {"seed": 2**63 - 1, "train_seed": 2**32 - 1, "most_cells": 10**9}
"""Values outside all groups, with the most that each may be (scikit-learn takes seeds of 32 bits)."""
PATHS = ("path", "cases")
"""Last part of keys that name a file or folder."""
MOST_VALUES = 100_000
"""Of one sweep: a longer one is refused before it is expanded."""
EXPECTED = "expected group=option or path.to.key=value, or several values: key=a,b or key=range(0,3)"


@dataclass(frozen=True)
class Setting:
    """A group or dotted key, and the value or values (a sweep) it gets."""

    text: str
    key: str
    values: tuple[Any, ...]
    is_sweep: bool

    @property
    def group(self) -> str:
        """First part of the key."""
        return group_of(self.key)

    @property
    def is_dotted(self) -> bool:
        """Whether a value is set, rather than an option chosen."""
        return is_dotted(self.key)

    @property
    def given(self) -> str:
        """What stands behind the equals sign."""
        return self.text.partition("=")[2]


def group_of(key: str) -> str:
    """First part of a key."""
    return key.partition(".")[0]


def is_dotted(key: str) -> bool:
    """Whether `key` names a value, rather than a group of options."""
    return "." in key or key in WHOLE_NUMBERS


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
    """Read `key=value`, `group=option` or a sweep of either; raise InputError for anything else."""
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as exc:
        reason = str(exc).strip().splitlines()[0].partition(" expecting ")[0]
        quotes = "; text of other signs takes two pairs of quotes, key='\"text\"'" if "token" in reason else ""
        raise InputError(f"set: given {text!r}, {EXPECTED} ({reason}){quotes}") from exc
    key = override.key_or_group
    if override.is_add() or override.is_delete() or override.is_force_add() or override.package is not None:
        raise InputError(f"set: given {text!r}; only group=option and path.to.key=value are offered, no +, ~ or @")
    if not key:
        raise InputError(f"set: given {text!r}, {EXPECTED}")
    return Setting(text, key, tuple(_value(key, v) for v in _values(override)), override.is_sweep_override())


def plain(value: Any, where: str) -> Any:
    """Give a value its one form, 500 for 500.0, so that equal values make equal keys; nan and inf raise InputError."""
    if isinstance(value, dict):
        return {str(key): plain(item, f"{where}.{key}" if where else str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, where) for item in value]
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where}: given {value}, expected a finite number")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def absolute(path: str) -> str:
    """The one name of a file, however it was given: relative, from home or through links."""
    try:
        return str(Path(path).expanduser().resolve())
    except RuntimeError:  # a home that is not known: the name is meant as it stands
        return path


def _value(key: str, value: Any) -> Any:
    value = plain(value, key)
    if key in WHOLE_NUMBERS and not (type(value) is int and 0 <= value <= WHOLE_NUMBERS[key]):
        raise InputError(f"{key}: given {value!r}, expected a whole number from 0 to {WHOLE_NUMBERS[key]}")
    if value and isinstance(value, str) and "." in key and key.rpartition(".")[2] in PATHS:
        return absolute(value)
    return value


def _values(override: Override) -> list[Any]:
    """The value, or those of a sweep in the order written: the order of an axis is no content, so shuffling is none."""
    if not override.is_sweep_override():
        return [override.value()]
    sweep: Any = override.value()
    try:
        listed = sweep.range() if isinstance(sweep, RangeSweep) else override.sweep_iterator()
        values = list(islice(iter(listed), MOST_VALUES + 1))
    except (ArithmeticError, ValueError, HydraException) as exc:  # a step of 0, nan; glob() and interval()
        raise InputError(f"set: given {override.input_line!r}, {EXPECTED}") from exc
    if not values:
        raise InputError(f"set: given {override.input_line!r}, which holds no value")
    if len(values) > MOST_VALUES:
        raise InputError(f"set: given {override.input_line!r}, which holds more than {MOST_VALUES} values")
    return values
