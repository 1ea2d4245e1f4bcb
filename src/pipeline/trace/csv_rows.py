"""Lines of comma-separated values as fields, for readers of tables."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from pipeline.trace.rows import RowError, shown


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
