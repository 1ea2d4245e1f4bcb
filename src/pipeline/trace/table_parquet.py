"""Reader of any parquet file with one request a row, by a mapping of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from pipeline.spec import InputError
from pipeline.trace.ledger import Ledger
from pipeline.trace.lines import PARQUET, ReadLines, start_of
from pipeline.trace.rows import Row, RowError, block_ids, full_blocks, shown
from pipeline.trace.table import COLUMNS_HINT, UNIT_HINT, TableTrace

BATCH_ROWS = 2**14
NUMBER, TEXT, TIME, LIST = "a number", "text", "a timestamp", "a list of integers"


class ParquetTrace(TableTrace):
    """Parquet with one request a row; row numbers are positions from 1. Only the columns named are read.

    Numbers may be of any numeric type or text. The arrival is a number, a timestamp (arrival_unit_s: null; UTC if it
    has no zone) or text as in a CSV. A null is a missing value.
    hash_ids_column: lists of the ids of a prompt's blocks of block_tokens tokens, chained: equal id, equal content and
    equal prefix. All blocks or the full ones; the id of a last, partial block is dropped. A negative id is the unsigned
    one of equal bits. null: the trace has no prefixes, nothing can be reused.
    """

    magic: ClassVar[bytes] = PARQUET

    hash_ids_column: str | None

    @override
    def lists_blocks(self) -> bool:
        """Whether there is a column of hashes."""
        return self.hash_ids_column is not None

    @override
    def columns(self) -> list[str]:
        """Columns to read, each once."""
        hashes = [] if self.hash_ids_column is None else [self.hash_ids_column]
        return list(dict.fromkeys([*super().columns(), *hashes]))

    @override
    def row(self, values: Mapping[str, Any]) -> Row:
        """Make a request of the values of the columns."""
        row, column = super().row(values), self.hash_ids_column
        if column is None:
            return row
        if values[column] is None:
            raise RowError(column, "missing")
        ids = block_ids([v % 2**64 if isinstance(v, int) else v for v in values[column]], column)
        return row._replace(block_ids=full_blocks(ids, column, row.input_tokens, self.block_tokens))

    @override
    def rows(self, read: ReadLines, ledger: Ledger) -> Iterator[tuple[int, Row]]:
        """Yield the requests of the file and the position of each; a file of another kind raises InputError."""
        del read
        path, ids, number = self.file(), set[Hashable](), 0
        if not start_of(path).startswith(PARQUET):
            raise InputError(f"trace.path: given {str(path)!r}, expected a parquet file")
        for values in self._values(path):
            number += 1
            yield from self._counted(partial(self._told, values), number, b"\n", ids, ledger)
        if not number:
            raise InputError(f"{path}: holds no rows, expected at least one request")

    def _told(self, values: Mapping[str, Any]) -> tuple[Row]:
        return (self.row(values),)

    def _values(self, path: Path) -> Iterator[dict[str, Any]]:
        number, names = 0, self.columns()
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                self._check(file.schema_arrow, path)
                for batch in file.iter_batches(BATCH_ROWS, columns=names):
                    for values in zip(*(_plain(batch.column(name)) for name in names), strict=True):
                        number += 1
                        yield dict(zip(names, values, strict=True))
        except InputError:
            raise
        except (OSError, ValueError, pa.ArrowException) as exc:  # a damaged file has names that are no text, too
            problem = str(exc).split("\n")[0]
            raise InputError(f"{path}, after row {number}: cannot be read to its end: {problem}") from exc

    def _check(self, schema: pa.Schema, path: Path) -> None:
        expected: dict[str, tuple[str, ...]] = {name: (NUMBER, TEXT) for name in self.columns()}
        expected[self.arrival_column] = (TEXT, TIME) if self.arrival_unit_s is None else (NUMBER, TEXT)
        if self.hash_ids_column is not None:
            expected[self.hash_ids_column] = (LIST,)
        for name, kinds in expected.items():
            if schema.names.count(name) != 1:
                problem = "missing" if name not in schema.names else "there twice"
                found = ", ".join(map(shown, schema.names[:20]))
                raise InputError(f"{path}: column {name!r} is {problem}; found {found}{COLUMNS_HINT}")
            if _kind(schema.field(name).type) not in kinds:
                hint = UNIT_HINT if name == self.arrival_column else ""
                given = str(schema.field(name).type)[:60]
                raise InputError(f"{path}: column {name!r} is of type {given}, expected {' or '.join(kinds)}{hint}")


def _kind(of: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(of):
        return _kind(of.value_type)
    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        return LIST if types.is_integer(of.value_type) else ""
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return TEXT
    if types.is_timestamp(of):
        return TIME
    return NUMBER if types.is_integer(of) or types.is_floating(of) or types.is_decimal(of) else ""


def _plain(column: pa.Array) -> list[Any]:
    """Values as text, numbers, lists and, of timestamps, ns since 1970; None for null."""
    of = column.type
    if pa.types.is_dictionary(of):
        return _plain(column.dictionary_decode())
    if pa.types.is_timestamp(of):
        unit_ns = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[of.unit]
        return [None if v is None else v * unit_ns for v in column.cast(pa.int64()).to_pylist()]
    if _kind(of) == TEXT:  # which need not be UTF-8
        return [None if v is None else v.decode("utf-8", "replace") for v in column.cast(pa.large_binary()).to_pylist()]
    return (column if pa.types.is_integer(of) or _kind(of) == LIST else column.cast(pa.float64())).to_pylist()
