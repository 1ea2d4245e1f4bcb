"""`Spec`: the base of every object built from conf/, and `build`, which builds it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

T = TypeVar("T")
TARGET = "_target_"
"""Key of an option that names its class."""

Ratio = Annotated[float, Field(ge=0, le=1, strict=True)]
OpenRatio = Annotated[float, Field(gt=0, lt=1, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
NonNegative = Annotated[float, Field(ge=0, strict=True)]
Count = Annotated[int, Field(gt=0, lt=2**53, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Name = Annotated[str, Field(min_length=1)]


class InputError(ValueError):
    """A mistake in what the user gave: one line saying what was given, what was expected and where."""


class Spec(BaseModel):
    """An immutable, validated value built from one YAML option; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


class Sourced(Spec):
    """A published or measured number with where it comes from."""

    value: Annotated[float, Field(strict=True)]
    source: str
    as_of: str


def build(config: Any, where: str, expected: type[T]) -> T:
    """Build the object that `config` describes and check that it is an `expected`.

    A mapping with `_target_` (a class inside the package) becomes an instance of it, nested ones first. Raises
    InputError naming `where` (the path in the configuration), the key, the value given and what is allowed.
    """
    value = _build(config, where)
    if not isinstance(value, expected):
        given = type(value).__name__
        raise InputError(f"{where}: given {given}, expected a kind of {expected.__name__}")
    return value


def _build(config: Any, where: str) -> Any:
    if isinstance(config, Mapping):
        fields = {key: _build(value, f"{where}.{key}") for key, value in config.items() if key != TARGET}
        return _instance(str(config[TARGET]), fields, where) if TARGET in config else fields
    if isinstance(config, (list, tuple)):
        return [_build(item, f"{where}[{i}]") for i, item in enumerate(config)]
    return config


def class_of(target: str, where: str) -> type[Spec]:
    """Find the class that `_target_` names; raise InputError for anything but a Spec of this package."""
    module, _, name = target.rpartition(".")
    if not module.startswith("pipeline."):
        raise InputError(f"{where}._target_: given {target!r}, expected a class inside the package pipeline")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise InputError(f"{where}._target_: given {target!r}, which cannot be imported ({exc})") from exc
    if not (isinstance(cls, type) and issubclass(cls, Spec)):
        raise InputError(f"{where}._target_: given {target!r}, expected a Spec class")
    return cls


def _instance(target: str, fields: dict[str, Any], where: str) -> Any:
    cls = class_of(target, where)
    try:
        return cls(**fields)
    except ValidationError as exc:
        raise InputError("; ".join(_explain(error, cls, where) for error in exc.errors())) from exc


def _explain(error: Any, cls: type[Spec], where: str) -> str:
    path = ".".join([where, *map(str, error["loc"])])
    if error["type"] == "extra_forbidden":
        return f"{path}: unknown key; allowed: {', '.join(sorted(cls.model_fields))}"
    if error["type"] == "missing":
        return f"{path}: missing"
    message = str(error["msg"].removeprefix("Value error, "))
    if not error["loc"]:  # a check over several fields, which names them and what was given itself
        return message
    return f"{path}: given {error['input']!r}: {message}"
