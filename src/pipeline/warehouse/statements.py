"""The SQL files: their text, and the comments that their headers and schema.py put on every table and column.

A file is one SELECT. Its first line says what a row is; a line `-- name: meaning [unit]` explains a column that
schema.py or an earlier file does not explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.schema import Column

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SQL = Path(__file__).parent / "sql"


def select_of(name: str) -> str:
    """Text of sql/<name>.sql."""
    return (SQL / f"{name}.sql").read_text()


def grain_of(name: str) -> str:
    """First line of sql/<name>.sql: what a row is, or which rule a check keeps."""
    return select_of(name).splitlines()[0].removeprefix("-- ")


def meanings_of(name: str) -> dict[str, str]:
    """Columns that the header of sql/<name>.sql explains."""
    lines = select_of(name).splitlines()[1:]
    header = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    return {column: meaning for column, _, meaning in (line.partition(": ") for line in header) if meaning}


def meaning(column: Column) -> str:
    """What schema.py says of a column, with its unit."""
    text = column.meaning or column.name.replace("_", " ")
    return f"{text} [{column.unit}]" if column.unit else text


@dataclass(frozen=True)
class Relation:
    """A table or view with what a row is and what its columns mean."""

    name: str
    grain: str
    meanings: Mapping[str, str]
    kind: str = "TABLE"


def comment_on(con: DuckDBPyConnection, relations: Iterable[Relation]) -> None:
    """Put comments on relations and columns; a column that its relation does not explain means what it did before."""
    known: dict[str, str] = {}
    for relation in relations:
        con.execute(f"COMMENT ON {relation.kind} {relation.name} IS {_quoted(relation.grain)}")
        for name in _columns(con, relation.name):
            text = relation.meanings.get(name) or known[name]
            con.execute(f'COMMENT ON COLUMN {relation.name}."{name}" IS {_quoted(text)}')
        known |= relation.meanings


def _columns(con: DuckDBPyConnection, relation: str) -> list[str]:
    query = "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND database_name = current_database()"
    return [row[0] for row in con.execute(query, [relation]).fetchall()]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
