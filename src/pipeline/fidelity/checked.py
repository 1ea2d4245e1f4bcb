"""Tables of a case on disk, checked column by column; a mistake is told with its file, row and column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from pipeline.spec import InputError

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_COUNT = 2**24
"""The largest count of tokens or requests that a table may give, as in a step of an engine."""


@dataclass(frozen=True)
class CheckedTable:
    """A table of one row or more."""

    path: Path
    table: pa.Table

    @property
    def row_count(self) -> int:
        """Rows without the header."""
        return int(self.table.num_rows)

    def numbers(self, name: str, above: float = -math.inf) -> Floats:
        """Finite numbers above `above`, in every row. Raises InputError for anything else."""
        values = self._parsed(name)
        expected = "a finite number" if math.isinf(above) else f"a finite number above {above:g}"
        self.refuse(~(np.isfinite(values) & (values > above)), expected, name)
        return values

    def times(self, name: str) -> Floats:
        """Finite numbers of 0 or more, in every row. Raises InputError for anything else."""
        values = self._parsed(name)
        self.refuse(~(np.isfinite(values) & (values >= 0)), "a finite time of 0 or more", name)
        return values

    def counts(self, name: str, least: int = 0) -> Ints:
        """Whole numbers from `least`, in every row. Raises InputError for anything else."""
        values = self._parsed(name)
        right = (values >= least) & (values <= MOST_COUNT) & (values == np.floor(values))
        self.refuse(~right, f"a whole number from {least} to {MOST_COUNT}", name)
        return values.astype(np.int64)

    def texts(self, name: str) -> NDArray[np.str_]:
        """Text in every row. Raises InputError for a row without."""
        values = self._given(name)
        self.refuse(np.array([not value for value in values]), "a name", name)
        return np.array(values, np.str_)

    def refuse(self, wrong: Bools, expected: str, name: str | None = None) -> None:
        """Raise InputError for the first row of those that are `wrong` (n,), with what its column `name` gives."""
        if not wrong.any():
            return
        row = int(np.argmax(wrong))
        given = f", column {name!r}: given {self._given(name)[row] or 'nothing'}" if name else ":"
        raise InputError(f"{self.path}, row {row + 2}{given}{',' if name else ''} expected {expected}")

    def refuse_repeated(self, *names: str) -> None:
        """Raise InputError for the first row that repeats the columns `names` of an earlier one."""
        rows = list(zip(*(self._given(name) for name in names), strict=True))
        first = {row: i for i, row in reversed(list(enumerate(rows)))}
        repeated = np.array([first[row] != i for i, row in enumerate(rows)])
        self.refuse(repeated, f"each {' and '.join(names)} once")

    def _parsed(self, name: str) -> Floats:
        """Numbers; NaN where a row gives none."""
        return np.array([_number(text) for text in self._given(name)], np.float64)

    def _given(self, name: str) -> list[str | None]:
        found = self.table.column_names.count(name)
        if found != 1:
            fault = "is missing" if found == 0 else f"is there {found} times"
            raise InputError(f"{self.path}: column {name!r} {fault}; it has {', '.join(self.table.column_names)}")
        values: list[str | None] = self.table[name].to_pylist()
        return values


def read_table(path: Path) -> CheckedTable:
    """Read a table. Raises InputError where it cannot be read, and for one without rows."""
    try:
        names = pa.csv.open_csv(path).schema.names
        as_given = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        table = pa.csv.read_csv(path, convert_options=as_given)
    except (OSError, pa.ArrowInvalid) as exc:
        raise InputError(f"{path}: expected a readable table ({exc})") from exc
    if not table.num_rows:
        raise InputError(f"{path}: given a header and no rows, expected some")
    return CheckedTable(path, table)


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
