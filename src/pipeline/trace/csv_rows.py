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
    """Positions of the wanted columns in a file, by the names in its first line; of the optional ones it has, too."""

    def __init__(self, line: str, wanted: Sequence[str], hint: str = "", optional: Sequence[str] = ()) -> None:
        try:
            self.names = [name.strip() for name in fields_of(line)]
        except RowError as exc:
            raise RowError("header", str(exc), fatal=True) from None
        self.columns = [*wanted, *(name for name in optional if name in self.names)]
        for name in self.columns:
            if self.names.count(name) != 1:
                found = ", ".join(map(shown, self.names[:20]))
                problem = "missing" if name not in self.names else "there twice"
                if len(self.names) == 1 and any(sign in line for sign in ";\t|"):
                    hint = " (values are to be separated by commas)"
                raise RowError("header", f"column {name!r} is {problem}; found {found}{hint}", fatal=True)
        self.positions = [self.names.index(name) for name in self.columns]

    def values(self, line: str) -> dict[str, str]:
        """Values of the columns, by their names."""
        fields = fields_of(line)
        if len(fields) != len(self.names):
            raise RowError("line", f"given {len(fields)} values, expected {len(self.names)} as in the header")
        return {name: fields[position] for name, position in zip(self.columns, self.positions, strict=True)}


class CsvLines(LineParser):
    """A header, then one request a line: `row` makes it of the values of its columns, by their names.

    wanted: columns that must be there; optional: those that may be; all others are ignored.
    """

    def __init__(
        self,
        wanted: Sequence[str],
        row: Callable[[Mapping[str, str]], Row],
        hint: str = "",
        optional: Sequence[str] = (),
    ) -> None:
        self._wanted, self._row, self._hint, self._optional = wanted, row, hint, optional
        self._header: Header | None = None

    @override
    def line(self, text: str, number: int) -> Iterable[Row]:
        """Nothing of the first line, a request of any other."""
        if self._header is None:
            self._header = Header(text, self._wanted, self._hint, self._optional)
            return ()
        return (self._row(self._header.values(text)),)


def header_of(lines: Sequence[str]) -> list[str]:
    """Names in the first line of a file, none if it is no header."""
    try:
        return [name.strip() for name in fields_of(lines[0])] if lines else []
    except RowError:
        return []
