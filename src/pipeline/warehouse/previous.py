"""The warehouse that is there already: refuse one of another version, take over its other studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.schema import TABLES, Column, Table
from pipeline.spec import InputError
from pipeline.warehouse.reporting import REPORT_TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BASE_TABLES = (*TABLES.values(), *REPORT_TABLES)
TYPES = {"str": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN"}
_STUDY = Column("study", "str", "", "study that the row belongs to")
_LOCKED = "Could not set lock"


def columns_of(table: Table) -> tuple[Column, ...]:
    """Columns in the warehouse: those of the table, led by `study` where it has none."""
    return table.columns if "study" in table.names() else (_STUDY, *table.columns)


def refuse_other_version(warehouse: Path) -> None:
    """Raise InputError where `warehouse` could not be published into; silent where there is none, or it is in use.

    Reads the names of its columns alone, so that a study can be stopped before it runs.
    """
    if not warehouse.is_file():
        return
    import duckdb  # a tenth of a second that only an existing file costs

    try:
        with duckdb.connect(str(warehouse), read_only=True) as con:
            _refuse_other_schema(con, warehouse)
    except duckdb.Error as exc:
        if _LOCKED not in str(exc):
            raise _unusable(warehouse, str(exc)) from exc


def keep_other_studies(con: DuckDBPyConnection, warehouse: Path, study: str) -> None:
    """Copy all rows but those of `study` from the file into the base tables of `con`; raise InputError as above."""
    import duckdb

    quoted = str(warehouse.resolve()).replace("'", "''")
    try:
        con.execute(f"ATTACH '{quoted}' AS previous (READ_ONLY, TYPE duckdb)")
        _refuse_other_schema(con, warehouse, "previous")
        for table in BASE_TABLES:
            columns = ", ".join(f'"{column.name}"' for column in columns_of(table))
            con.execute(
                f"INSERT INTO {table.name} SELECT {columns} FROM previous.{table.name} WHERE study <> ?", [study]
            )
    except duckdb.Error as exc:
        raise _unusable(warehouse, str(exc)) from exc


def _refuse_other_schema(con: DuckDBPyConnection, warehouse: Path, database: str | None = None) -> None:
    query = (
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = coalesce(?, current_database())"
    )
    there = set(con.execute(query, [database]).fetchall())
    for table in BASE_TABLES:
        for column in columns_of(table):
            if (table.name, column.name, TYPES[column.kind]) not in there:
                raise _unusable(warehouse, f"it has no {TYPES[column.kind]} column {table.name}.{column.name}")


def _unusable(warehouse: Path, reason: str) -> InputError:
    if _LOCKED in reason:
        return InputError(f"{warehouse}: another program has it open for writing; close that and run again")
    first = reason.strip().splitlines()[0]
    return InputError(
        f"{warehouse}: not a warehouse of this version ({first}); delete it and run your studies again: "
        "nothing simulated is lost"
    )
