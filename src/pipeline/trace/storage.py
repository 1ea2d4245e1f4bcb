"""A `RequestTrace` as named arrays, for tables.write_arrays and read_arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from pipeline.spec import InputError
from pipeline.trace.request_trace import RequestTrace

Array = np.ndarray[Any, Any]


def to_arrays(trace: RequestTrace) -> dict[str, Array]:
    """Return one array per field of the trace, texts as unicode arrays."""
    return {field.name: np.asarray(getattr(trace, field.name)) for field in fields(trace)}


def from_arrays(arrays: Mapping[str, Array]) -> RequestTrace:
    """Rebuild the trace that `to_arrays` took apart. Raises InputError if an array is missing or unknown."""
    expected = {field.name for field in fields(RequestTrace)}
    if set(arrays) != expected:
        wrong = sorted(set(arrays) ^ expected)
        raise InputError(f"stored trace: missing or unknown arrays {wrong}; expected {sorted(expected)}")
    values: dict[str, Any] = dict(arrays)
    values["name"], values["classes"] = str(values["name"]), tuple(map(str, values["classes"]))
    values["block_tokens"], values["has_prefixes"] = int(values["block_tokens"]), bool(values["has_prefixes"])
    return RequestTrace(**values)
