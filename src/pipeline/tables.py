"""Checked parquet I/O: a table is written whole or not at all, and never with a wrong column or a stray null."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.schema import TABLES, Column, Table
from pipeline.spec import InputError

_ARROW = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


def arrow_schema(table: Table) -> pa.Schema:
    """Arrow schema of `table`, units and meanings as field metadata."""
    return pa.schema([_field(column) for column in table.columns], metadata={"grain": table.grain})


def _field(column: Column) -> pa.Field:
    about = {"unit": column.unit, "meaning": column.meaning}
    return pa.field(column.name, _ARROW[column.kind], column.nullable, about)


def from_columns(table: Table, columns: Mapping[str, Any]) -> pa.Table:
    """Build a checked table from one sequence or scalar per column; a scalar is repeated.

    NaN in a float column becomes null. Raises InputError naming table and column for a missing or extra column, a
    value of the wrong type, or a null where none may be.
    """
    given, expected = set(columns), set(table.names())
    if given != expected:
        raise InputError(f"table {table.name}: missing {sorted(expected - given)}, unknown {sorted(given - expected)}")
    lengths = {len(v) for v in columns.values() if _is_sequence(v)}
    if len(lengths) > 1:
        raise InputError(f"table {table.name}: columns of different lengths {sorted(lengths)}")
    count = lengths.pop() if lengths else 1
    arrays = [_array(table, column, columns[column.name], count) for column in table.columns]
    return check(table, pa.Table.from_arrays(arrays, schema=arrow_schema(table)))


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Build a checked table from one mapping per row, each with every column."""
    listed = list(rows)
    for i, row in enumerate(listed):
        if set(row) != set(table.names()):
            wrong = sorted(set(row) ^ set(table.names()))
            raise InputError(f"table {table.name}, row {i}: missing or unknown columns {wrong}")
    return from_columns(table, {name: [row[name] for row in listed] for name in table.names()})


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray, pa.Array)) and not isinstance(value, str)


def _array(table: Table, column: Column, values: Any, count: int) -> pa.Array:
    if not _is_sequence(values):
        values = [values] * count
    try:
        if column.kind == "float" and not isinstance(values, pa.Array):
            values = _floats(values)
            return pa.array(values, mask=np.isnan(values))
        return pa.array(values, type=_ARROW[column.kind])
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as exc:
        raise InputError(f"table {table.name}, column {column.name}: expected {column.kind}: {exc}") from exc


def _floats(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return values.astype(np.float64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def check(table: Table, data: pa.Table) -> pa.Table:
    """Return `data` if its columns, types and nulls are as `table` says; else raise InputError."""
    expected = arrow_schema(table)
    if not data.schema.equals(expected):
        raise InputError(f"table {table.name}: columns {data.schema.names}, expected {expected.names} in these types")
    for column in table.columns:
        nulls = data.column(column.name).null_count
        if nulls and not column.nullable:
            raise InputError(f"table {table.name}, column {column.name}: {nulls} null(s), none allowed")
    return data


def write(folder: Path, table: Table, data: pa.Table) -> Path:
    """Write `folder/<table>.parquet` whole or not at all."""
    path = folder / f"{table.name}.parquet"
    with replacing(path) as partial:
        pq.write_table(check(table, data), partial, compression="zstd")
    return path


def read(path: Path) -> pa.Table:
    """Read a table that `write` wrote, and check it; the file's name says which table it is."""
    table = TABLES.get(path.stem)
    if table is None:
        raise InputError(f"{path}: not the name of a table; expected one of {sorted(TABLES)}")
    try:
        return check(table, pq.ParquetFile(path).read())  # read_table would import pandas
    except (pa.ArrowInvalid, OSError) as exc:
        raise InputError(f"{path}: cannot be read as parquet: {exc}") from exc


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes its place at once, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write named arrays (no pickles) whole or not at all."""
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read what `write_arrays` wrote."""
    with np.load(path, allow_pickle=False) as data:
        return {name: data[name] for name in data.files}
