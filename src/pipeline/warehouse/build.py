"""Publish a study into the warehouse: load, check, keep the other studies, build marts, swap the file at once."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from pipeline import tables as parquet
from pipeline.schema import CLAIMS, TABLES
from pipeline.spec import InputError
from pipeline.warehouse.claims import Known
from pipeline.warehouse.previous import BASE_TABLES, TYPES, columns_of, keep_other_studies
from pipeline.warehouse.reporting import Reporting
from pipeline.warehouse.statements import SQL, Relation, comment_on, grain_of, meaning, meanings_of, select_of

Connection = duckdb.DuckDBPyConnection
STAGING = ("stg_cells", "stg_requests", "stg_capacity", "stg_balance", "stg_comparisons", "stg_recomputing")
MARTS = (
    "cell_metrics",
    "differences",
    "ranking",
    "placement_ranking",
    "routing_ranking",
    "served_tier_latency",
    "load_verdict",
    "capacity_frontier",
    "candidates",
    "alternatives",
    "recommendation",
    "predictor_summary",
    "predictor_comparison",
    "trace_summary",
    "provenance_summary",
)
STUDENT_T = Relation(
    "student_t",
    "One row per sample and comparison count that occurs: what 95 % intervals are made with.",
    {
        "sample_count": "samples, degrees of freedom + 1",
        "comparison_count": "intervals that are to hold together (Bonferroni)",
        "quantile": "two-sided 95 % quantile of Student's t",
    },
)


def publish(warehouse: Path, study: str, tables: Mapping[str, Sequence[Path]], report: Reporting) -> None:
    """Replace the rows of `study` in the file `warehouse` (made where there is none), and every mart.

    tables: parquet files by table name; a table without files has no rows. The rows are checked first (sql/check_*).
    The file changes whole or not at all. Raises InputError for an unknown table, a file that is not that table, a
    failed check (naming it and the first offending row) and an existing file that cannot be carried over.
    """
    unknown = sorted(set(tables) - set(TABLES))
    if unknown:
        raise InputError(f"warehouse: unknown table {', '.join(unknown)}; expected some of {', '.join(TABLES)}")
    warehouse.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=warehouse.parent, prefix=f".{warehouse.stem}.") as folder:
        fresh = Path(folder, warehouse.name)
        with duckdb.connect(str(fresh)) as con:
            con.begin()  # one transaction: hundreds of commits would each wait for the disk
            _create(con)
            _load(con, study, tables)
            for name, rows in report.rows(study).items():
                _insert_rows(con, name, rows)
            run_checks(con)
            if warehouse.exists():
                keep_other_studies(con, warehouse, study)
            _create_student_t(con)
            for mart in MARTS:
                con.execute(f"CREATE TABLE {mart} AS {select_of(f'mart_{mart}')}")
            known = Known(con, study, {price.name: price for price in (*report.prices, report.price)})
            _insert_rows(con, CLAIMS.name, report.claims.rows(known))
            comment_on(con, _relations())
            con.commit()
        fresh.replace(warehouse)


def _create(con: Connection) -> None:
    for table in BASE_TABLES:
        columns = (f'"{c.name}" {TYPES[c.kind]}{"" if c.nullable else " NOT NULL"}' for c in columns_of(table))
        con.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
    con.execute(f"CREATE MACRO verdict_of(difference, half_width, equal) AS {select_of('macro_verdict_of')}")
    for view in STAGING:
        con.execute(f"CREATE VIEW {view} AS {select_of(view)}")


def _create_student_t(con: Connection) -> None:
    """Two-sided 95 % quantiles of Student's t, Bonferroni-widened: what the intervals in SQL are made with."""
    largest = "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM stg_cells GROUP BY config_id)"
    widths = (
        "SELECT 1 UNION SELECT option_comparison_count FROM stg_comparisons "
        "UNION SELECT tiers_comparison_count FROM stg_comparisons ORDER BY 1"
    )
    most = con.execute(largest).fetchall()[0][0]
    counts = [row[0] for row in con.execute(widths).fetchall()]
    samples, comparisons = (grid.ravel() for grid in np.meshgrid(np.arange(2, most + 1), counts))
    quantiles = stdtrit(samples - 1, 1 - 0.025 / comparisons)
    incoming = pa.table({"sample_count": samples, "comparison_count": comparisons, "quantile": quantiles})
    con.register("incoming", incoming)
    con.execute("CREATE TABLE student_t AS SELECT * FROM incoming")
    con.unregister("incoming")


def _load(con: Connection, study: str, tables: Mapping[str, Sequence[Path]]) -> None:
    for name, paths in tables.items():
        table = TABLES[name]
        values = ", ".join("$study" if c.name == "study" else f'"{c.name}"' for c in columns_of(table))
        for path in dict.fromkeys(paths):
            if path.stem != name:
                raise InputError(f"{path}: given as table {name}, expected a file called {name}.parquet")
            con.register("incoming", parquet.read(path))
            con.execute(f"INSERT INTO {name} SELECT {values} FROM incoming", {"study": study})
            con.unregister("incoming")


def _insert_rows(con: Connection, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        names = ", ".join(f'"{column}"' for column in row)
        con.execute(f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def run_checks(con: Connection) -> None:
    """Run every sql/check_*.sql; raise InputError naming the first that returns rows, and its first row."""
    for path in sorted(SQL.glob("check_*.sql")):
        found = con.execute(select_of(path.stem))
        columns = [column[0] for column in found.description or ()]
        rows = found.fetchall()
        if rows:
            first = ", ".join(f"{column}={value}" for column, value in zip(columns, rows[0], strict=True))
            rule = grain_of(path.stem).rstrip(".")
            raise InputError(f"{path.stem}: {len(rows)} row(s) break the rule '{rule}'; first: {first}")


def _relations() -> list[Relation]:
    """Every table and view, with its grain and what its columns mean."""
    base = [
        Relation(t.name, f"One row per {t.grain}.", {c.name: meaning(c) for c in columns_of(t)}) for t in BASE_TABLES
    ]
    views = [Relation(view, grain_of(view), meanings_of(view), "VIEW") for view in STAGING]
    marts = [Relation(mart, grain_of(f"mart_{mart}"), meanings_of(f"mart_{mart}")) for mart in MARTS]
    return [*base, STUDENT_T, *views, *marts]
