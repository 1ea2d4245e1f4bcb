"""`TableTrace`: what readers of any table with one request a row share: the mapping of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from pipeline.spec import Positive
from pipeline.trace.file_source import FileSource
from pipeline.trace.rows import MOST_NS, Row, RowError, date_ns, name_in, number_in, shown, time_ns, tokens

COLUMNS_HINT = " (trace.arrival_column, input_column and output_column say which to read)"
UNIT_HINT = " (trace.arrival_unit_s says how many seconds its unit has; null: dates and times)"


class TableTrace(FileSource):
    """A table with one request a row; the fields say which column holds what. Other columns are ignored.

    arrival_unit_s: seconds in one unit of the arrival column (0.001 for milliseconds); null: dates and times.
    session_column: null makes every request a session of its own. class_column: null gives all the trace's name.
    request_id_column: a column whose values may not come twice; null: none.
    think_column: seconds from the end of the request before it in its session to the arrival, so that a session runs in
    a closed loop; a request without a value comes at its recorded time, and so does the first of a session, whatever
    its value. null: all run open loop.
    """

    arrival_column: str
    arrival_unit_s: Positive | None
    input_column: str
    output_column: str
    session_column: str | None
    class_column: str | None
    think_column: str | None
    request_id_column: str | None

    @model_validator(mode="after")
    def _thinks_in_sessions(self) -> TableTrace:
        if self.think_column is not None and self.session_column is None:
            raise ValueError("think_column: is from one request of a session to the next; expected a session_column")
        return self

    def columns(self) -> list[str]:
        """Columns to read, each once."""
        optional = (self.session_column, self.class_column, self.think_column, self.request_id_column)
        names = [self.arrival_column, self.input_column, self.output_column, *optional]
        return list(dict.fromkeys(name for name in names if name is not None))

    def row(self, values: Mapping[str, Any]) -> Row:
        """Make a request of the values of the columns: text, numbers, or None for what is missing."""
        return Row(
            self._arrival_ns(values[self.arrival_column]),
            tokens(_number(values[self.input_column], self.input_column), self.input_column, 1),
            tokens(_number(values[self.output_column], self.output_column), self.output_column, 0),
            _label(values, self.session_column) or None,
            _label(values, self.class_column),
            think_s=_think_s(values, self.think_column),
            request_id=_label(values, self.request_id_column) or None,
        )

    def _arrival_ns(self, value: Any) -> int:
        field = self.arrival_column
        if self.arrival_unit_s is not None:
            try:
                return time_ns(_number(value, field), field, self.arrival_unit_s)
            except RowError as exc:
                raise RowError(field, exc.problem + UNIT_HINT) from None
        if isinstance(value, int):  # ns since 1970
            if not 0 <= value <= MOST_NS:
                raise RowError(field, f"given {shown(value)} ns since 1970, expected a date from 1970 to 2262")
            return value
        return date_ns(_text(value, field), field)


def _text(value: Any, field: str) -> str:
    if value is None:
        raise RowError(field, "missing")
    return str(value)


def _number(value: Any, field: str) -> Any:
    return number_in(_text(value, field), field) if value is None or isinstance(value, str) else value


def _label(values: Mapping[str, Any], column: str | None) -> str:
    return "" if column is None else name_in(_text(values[column], column), column)


def _think_s(values: Mapping[str, Any], column: str | None) -> float:
    value = None if column is None else values[column]
    if column is None or value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    return time_ns(_number(value, column), column, 1.0) / 1e9
