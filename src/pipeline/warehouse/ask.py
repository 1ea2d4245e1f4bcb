"""Read the warehouse: open it, fetch rows, print the answer to a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pipeline.spec import InputError

MOST_ROWS = 200
ANY_WIDTH = 1_000_000  # columns: what is piped is not folded


@contextmanager
def opened(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the warehouse for reading; raise InputError where there is none or it cannot be read."""
    if not warehouse.is_file():
        raise InputError(f"{warehouse}: there is no warehouse; run a study first (make run)")
    try:
        con = duckdb.connect(str(warehouse), read_only=True)
    except duckdb.Error as exc:
        raise InputError(f"{warehouse}: cannot be read: {_first_line(exc)}") from exc
    with con:
        yield con


def fetch(con: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Rows of a query as mappings from column to value."""
    found = con.execute(query, values)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def ask(warehouse: Path, query: str, console: Console | None = None) -> None:
    """Print the answer to `query`, at most its first rows: a table, or one record a row where that is too wide.

    The warehouse is open for reading; `copy (...) to 'file.csv'` writes that file. Raises InputError, with what the
    database says, for a query that it refuses.
    """
    console = console or Console()
    with opened(warehouse) as con:
        try:
            found = con.execute(query)
            if found is None:
                raise InputError('the query is empty; give one, as in make sql Q="from recommendation"')
            names = [column[0] for column in found.description or ()]
            rows = found.fetchmany(MOST_ROWS + 1)
        except duckdb.Error as exc:
            raise InputError(f"query refused: {_first_line(exc)}") from exc
    shown = [[Text(_shown(value)) for value in row] for row in rows[:MOST_ROWS]]
    table = Table(*(escape(name) for name in names))
    for row in shown:
        table.add_row(*row)
    width = Measurement.get(console, console.options.update(max_width=ANY_WIDTH), table).maximum
    if not rows:
        console.print(Text(f"no rows; columns {', '.join(names)}"))
    elif console.is_terminal and width > console.width:
        _print_records(console, names, shown)
    else:
        console.width = max(width, console.width)  # rich squeezes columns, to nothing if need be, into this width
        console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"the first {MOST_ROWS} rows; add LIMIT and OFFSET for others")


def _print_records(console: Console, names: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    for number, row in enumerate(rows, 1):
        console.rule(Text(f"row {number}"), align="left")
        record = Table.grid(padding=(0, 2))
        record.add_column(overflow="fold")
        record.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            record.add_row(escape(name), value)
        console.print(record)


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
