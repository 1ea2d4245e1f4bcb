"""Reader of any CSV with one request a line, by a mapping of its columns."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from pipeline.spec import Positive
from pipeline.trace.csv_rows import CsvLines
from pipeline.trace.file_source import FileSource
from pipeline.trace.rows import Row, RowError, date_ns, number_in, time_ns, tokens

COLUMNS_HINT = " (trace.arrival_column, input_column and output_column say which to read)"
UNIT_HINT = " (trace.arrival_unit_s says how many seconds its unit has; null: dates and times)"


class CsvTrace(FileSource):
    """CSV with a header; the fields say which column holds what. Other columns are ignored; a row is one line.

    arrival_unit_s: seconds in one unit of the arrival column (0.001 for milliseconds); null: ISO 8601 dates and times.
    session_column: null makes every request a session of its own. class_column: null gives all the trace's name.
    There are no prefixes: nothing can be reused.
    """

    arrival_column: str
    arrival_unit_s: Positive | None
    input_column: str
    output_column: str
    session_column: str | None
    class_column: str | None

    @override
    def parser(self) -> CsvLines:
        """Return a parser that takes the first line as header."""
        labels = [name for name in (self.session_column, self.class_column) if name is not None]
        wanted = [self.arrival_column, self.input_column, self.output_column, *labels]
        return CsvLines(wanted, self._row, COLUMNS_HINT)

    def _row(self, values: Mapping[str, str]) -> Row:
        return Row(
            self._arrival_ns(values[self.arrival_column]),
            tokens(number_in(values[self.input_column], self.input_column), self.input_column, 1),
            tokens(number_in(values[self.output_column], self.output_column), self.output_column, 0),
            _label(values, self.session_column) or None,
            _label(values, self.class_column),
        )

    def _arrival_ns(self, text: str) -> int:
        if self.arrival_unit_s is None:
            return date_ns(text, self.arrival_column)
        try:
            return time_ns(number_in(text, self.arrival_column), self.arrival_column, self.arrival_unit_s)
        except RowError as exc:
            raise RowError(self.arrival_column, exc.problem + UNIT_HINT) from None


def _label(values: Mapping[str, str], column: str | None) -> str:
    if column is None:
        return ""
    label = values[column].strip()
    if not label:
        raise RowError(column, "missing")
    return label
