"""Lines of comma-separated values as fields, for readers of tables."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence

from typing_extensions import override

from pipeline.trace.rows import LineParser, Row, RowError, shown


def fields_of(text: str) -> list[str]:
    """Split one line; a quoted field must end on it."""
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as exc:
        raise RowError("line", f"given {shown(text)}, expected comma-separated values ({exc})") from None


class Header:
    """Positions of the wanted columns in a file, by the names in its first line."""

    def __init__(self, line: str, wanted: Sequence[str], hint: str = "") -> None:
        try:
            self.names = [name.strip() for name in fields_of(line)]
        except RowError as exc:
            raise RowError("header", str(exc), fatal=True) from None
        for name in wanted:
            if self.names.count(name) != 1:
                found = ", ".join(map(shown, self.names[:20]))
                problem = "missing" if name not in self.names else "there twice"
                raise RowError("header", f"column {name!r} is {problem}; found {found}{hint}", fatal=True)
        self.positions = [self.names.index(name) for name in wanted]

    def values(self, line: str) -> list[str]:
        """Values of the wanted columns, in the order they were asked for."""
        fields = fields_of(line)
        if len(fields) != len(self.names):
            raise RowError("line", f"given {len(fields)} values, expected {len(self.names)} as in the header")
        return [fields[position] for position in self.positions]


class CsvLines(LineParser):
    """A header, then one request a line: `row` makes it of the values of the `wanted` columns, by their names."""

    def __init__(self, wanted: Sequence[str], row: Callable[[Mapping[str, str]], Row], hint: str = "") -> None:
        self._wanted, self._row, self._hint = wanted, row, hint
        self._header: Header | None = None

    @override
    def line(self, text: str, number: int) -> Iterable[Row]:
        """Nothing of the first line, a request of any other."""
        if self._header is None:
            self._header = Header(text, self._wanted, self._hint)
            return ()
        return (self._row(dict(zip(self._wanted, self._header.values(text), strict=True))),)


def header_of(lines: Sequence[str]) -> list[str]:
    """Names in the first line of a file, none if it is no header."""
    try:
        return [name.strip() for name in fields_of(lines[0])] if lines else []
    except RowError:
        return []
