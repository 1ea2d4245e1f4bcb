"""Lines that are JSON objects, for readers of JSONL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from typing_extensions import override

from pipeline.trace.rows import LineParser, Row, RowError, shown


def json_value(text: str, expected: str) -> Any:
    """Parse one JSON value; NaN and Infinity are refused. expected: what it should be, for messages."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise RowError("line", f"nested too deeply, expected one {expected}") from None
    except ValueError as exc:
        raise RowError("line", f"given {shown(text)}, expected one {expected} a line ({exc})") from None


def json_object(text: str) -> dict[str, Any]:
    """Parse one JSON object; NaN and Infinity are refused."""
    value = json_value(text, "JSON object")
    if not isinstance(value, dict):
        raise RowError("line", f"given {shown(value)}, expected one JSON object a line")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def member(record: dict[str, Any], field: str) -> Any:
    """Value of `field`; RowError if it is missing or null."""
    value = record.get(field)
    if value is None:
        found = [shown(name) for name, given in record.items() if given is not None]
        raise RowError(field, f"missing; found {', '.join(found[:6]) or 'nothing'}")
    return value


def label(record: dict[str, Any], field: str) -> str:
    """Text of `field`, "" if it is missing or null; RowError if it is anything else, or text that UTF-8 cannot hold."""
    value = record.get(field)
    if value is None:
        return ""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise RowError(field, f"given {shown(value)}, expected a text")
    return value.strip()


class ObjectLines(LineParser):
    """One request a line, made of its object by `row`."""

    def __init__(self, row: Callable[[dict[str, Any]], Row]) -> None:
        self._row = row

    @override
    def line(self, text: str, number: int) -> Iterable[Row]:
        """The request of a line."""
        return (self._row(json_object(text)),)


def keys_of(lines: Sequence[str]) -> set[str]:
    """Keys of the object in the first line of a file, none if it holds no object."""
    try:
        return set(json_object(lines[0])) if lines else set()
    except RowError:
        return set()
