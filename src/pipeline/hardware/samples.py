"""`Samples`: step times that somebody measured, from a CSV or parquet file.

One row is one measured step or kernel of one (hardware, model, tensor_parallel), all layers together, as one rank sees
it. Columns, all required but source: hardware, model, tensor_parallel, operation, prefill_tokens,
prefill_cached_tokens, decode_requests, decode_context_mean_tokens, decode_context_max_tokens, time_s, repeat_count.
Counts that an operation does not have are 0. Operations:

    dense              everything per scheduled token but attention and collectives; scheduled tokens =
                       prefill_tokens + decode_requests
    collective         the all-reduces of tensor parallelism, by scheduled tokens likewise
    logits             output projection and sampling of decode_requests sequences
    attention_prefill  attention of one chunk of prefill_tokens new over prefill_cached_tokens cached tokens
    attention_decode   attention of decode_requests requests over decode_context_mean_tokens each
    step               a whole step with at most one prefill chunk

Either operations (dense, attention_prefill, attention_decode; logits where dense leaves it out; collective with more
than one rank) or whole steps are needed. Whole steps alone are decomposed (`decompose.py`): each operation becomes its
roofline times a fitted factor, and the error of that is stated. Rows of other hardware, models or ranks are counted in
the table constants and not used.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.hardware.base import Calibration, CalibrationSource
from pipeline.hardware.decompose import decompose
from pipeline.hardware.rows import constant, constants, links
from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.schema import STEP_SAMPLES
from pipeline.spec import InputError, Sourced
from pipeline.tables import from_rows
from pipeline.values import EngineLimits

LABEL = "measured"
NEEDED = ("dense", "attention_prefill", "attention_decode")
PREFILL_TOKENS = ("prefill_tokens",)
OPERATIONS = {  # of each operation: columns of which one must be over 0, columns that must be 0
    "dense": (("prefill_tokens", "decode_requests"), ()),
    "collective": (("prefill_tokens", "decode_requests"), ()),
    "logits": (("decode_requests",), PREFILL_TOKENS),
    "attention_prefill": (PREFILL_TOKENS, ("decode_requests",)),
    "attention_decode": (("decode_requests",), PREFILL_TOKENS),
    "step": (("prefill_tokens", "decode_requests"), ()),
}


class Samples(CalibrationSource):
    """Measured samples in `path`; `collectives_in_dense` says that dense rows hold the all-reduces already."""

    path: str
    measured_by: str
    as_of: str
    collectives_in_dense: bool

    def file(self) -> Path:
        """The file of samples."""
        return Path(self.path)

    def calibrate(self, hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
        """Read, check and select the samples. Raises InputError naming file, row and column of what is wrong."""
        rows = list(read_rows(Path(self.path)))
        key = (hardware.name, model.name, engine.tensor_parallel)
        mine = [row for row in rows if (row["hardware"], row["model"], row["tensor_parallel"]) == key]
        if not mine:
            there = sorted({f"{r['hardware']}, {r['model']}, {r['tensor_parallel']}" for r in rows})
            raise InputError(
                f"{self.path}: no row of hardware {key[0]}, model {key[1]}, tensor_parallel {key[2]}; there are "
                f"rows of {'; '.join(there[:5])}"
            )
        counts = Counter(row["operation"] for row in mine)
        stated = {"source": f"{self.path}, measured by {self.measured_by}", "as_of": self.as_of}
        more = [
            constant("measured_sample_count", "count", Sourced(value=len(mine), **stated)),
            constant("other_sample_count", "count", Sourced(value=len(rows) - len(mine), **stated)),
        ]
        samples = from_rows(STEP_SAMPLES, [row for row in mine if row["operation"] != "step"])
        if samples.num_rows and counts["step"]:
            unused = Sourced(value=counts["step"], **stated)
            more.append(constant("unused_step_sample_count", "count", unused))
        if set(counts) == {"step"}:
            samples, error = decompose(from_rows(STEP_SAMPLES, mine), hardware, model, engine, self.path)
            error_value = Sourced(value=error, **stated)
            more.append(constant("step_decomposition_error_ratio", "ratio", error_value, error))
        else:
            self._check_complete(counts, engine)
        table = constants(hardware, model, engine, more)
        return Calibration(samples, table, links(hardware), LABEL, True)

    def _check_complete(self, counts: Mapping[str, int], engine: EngineLimits) -> None:
        missing = [name for name in NEEDED if name not in counts]
        if engine.tensor_parallel > 1 and not self.collectives_in_dense and "collective" not in counts:
            missing.append("collective (or hardware.source.collectives_in_dense=true)")
        if missing:
            there = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            raise InputError(f"{self.path}: no rows of operation {', '.join(missing)}; there are {there}")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the checked rows of a CSV (any line ends, with or without a byte order mark) or parquet file.

    Raises InputError naming the file, the row (line of a CSV, counted from 1; number of a parquet row) and the column.
    """
    if not path.is_file():
        raise InputError(f"hardware.source.path: given {str(path)!r}, but there is no such file")
    count = 0
    for where, raw in _raw_parquet(path) if path.suffix == ".parquet" else _raw_csv(path):
        count += 1
        yield _checked(raw, f"{path}, {where}")
    if count == 0:
        raise InputError(f"{path}: no rows")


def _raw_csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            _check_columns(path, reader.fieldnames or [])
            for row in reader:
                where = f"line {reader.line_num}"
                if None in row or None in row.values():
                    raise InputError(f"{path}, {where}: expected {len(reader.fieldnames or [])} values")
                yield where, row
    except (UnicodeDecodeError, csv.Error) as exc:
        raise InputError(f"{path}: not a CSV file in UTF-8: {exc}") from exc


def _raw_parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as exc:
        raise InputError(f"{path}: cannot be read as parquet: {exc}") from exc
    _check_columns(path, table.schema.names)
    for i, row in enumerate(table.to_pylist()):
        yield f"row {i + 1}", row


def _check_columns(path: Path, names: Any) -> None:
    expected = STEP_SAMPLES.names()
    missing = [name for name in expected if name not in names and name != "source"]
    unknown = [str(name) for name in names if name not in expected]
    if missing or unknown:
        wrong = f"missing column(s) {', '.join(missing) or 'none'}, unknown column(s) {', '.join(unknown) or 'none'}"
        raise InputError(f"{path}: {wrong}; expected {', '.join(expected)}")


def _checked(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    row: dict[str, Any] = {"source": LABEL}
    for column in STEP_SAMPLES.columns:
        if column.name == "source":
            continue
        given = raw[column.name]
        if column.kind == "str":
            row[column.name] = "" if given is None else str(given).strip()
        else:
            row[column.name] = _number(given, column.kind, f"{where}, column {column.name}")
    _check_operation(row, where)
    return row


def _number(given: Any, kind: str, where: str) -> int | float:
    try:
        value = float(given)
    except (TypeError, ValueError):
        raise InputError(f"{where}: given {given!r}, expected a number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: given {given!r}, expected a number of 0 or more")
    if kind == "int" and value != int(value):
        raise InputError(f"{where}: given {given!r}, expected a whole number")
    return int(value) if kind == "int" else value


def _check_operation(row: Mapping[str, Any], where: str) -> None:
    name = row["operation"]
    if name not in OPERATIONS:
        raise InputError(f"{where}, column operation: given {name!r}, expected one of {', '.join(OPERATIONS)}")
    some, none = OPERATIONS[name]
    if not any(row[column] > 0 for column in some):
        raise InputError(f"{where}, column {some[0]}: given 0, but a row of {name} needs {' or '.join(some)} over 0")
    for column in none:
        if row[column] > 0:
            raise InputError(
                f"{where}, column {column}: given {row[column]}, expected 0 in a row of {name} (a step that does both "
                "is operation step)"
            )
    if row["decode_context_max_tokens"] < row["decode_context_mean_tokens"]:
        raise InputError(f"{where}, column decode_context_max_tokens: given less than decode_context_mean_tokens")
    if name == "attention_decode" and row["decode_context_mean_tokens"] <= 0:
        raise InputError(f"{where}, column decode_context_mean_tokens: given 0, expected the tokens attended to")
    if row["time_s"] <= 0:
        raise InputError(f"{where}, column time_s: given {row['time_s']}, expected more than 0 s")
