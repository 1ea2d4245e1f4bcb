from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from test_warehouse_factory import (
    cell,
    decision,
    leftovers,
    one_cell_study,
    published,
    quality,
    query,
    reporting,
    request,
    study_of,
    two_stage_study,
    with_met,
    write,
)

from pipeline.runs import Plant
from pipeline.schema import TABLES
from pipeline.spec import InputError
from pipeline.values import Slo
from pipeline.warehouse.build import publish


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("old"), one_cell_study(), study="other")


def test_every_table_is_there_with_its_rows_and_study(tmp_path: Path) -> None:
    warehouse = published(tmp_path, two_stage_study())
    for name in TABLES:
        assert query(warehouse, f"select count(*) from {name} where study <> 'default'") == [(0,)]
    assert query(warehouse, "select count(*) from cells") == [(18,)]
    assert query(warehouse, "select count(*) from requests") == [(1800,)]
    assert leftovers(tmp_path) == ["warehouse.duckdb"]


def test_the_study_is_that_published_not_the_one_in_the_file(tmp_path: Path) -> None:
    warehouse = published(tmp_path, one_cell_study(study="another"), study="mine")
    assert query(warehouse, "select study from cells") == [("mine",)]


def test_publishing_again_replaces_the_rows_of_that_study_alone(tmp_path: Path) -> None:
    published(tmp_path, one_cell_study(met=60), study="a")
    published(tmp_path, one_cell_study(met=70), study="b")
    before = query(tmp_path / "warehouse.duckdb", "from requests where study = 'a' order by all")
    warehouse = published(tmp_path, one_cell_study("d", met=80), study="b")
    assert query(warehouse, "from requests where study = 'a' order by all") == before
    assert query(warehouse, "select study, cell_id from cells order by all") == [("a", "c"), ("b", "d")]
    goodput = query(warehouse, "select study, goodput_per_s from placement_ranking order by all")
    assert goodput == [("a", 6.0), ("b", 8.0)]
    assert query(warehouse, "select study, count(*) from report_slo group by all order by all") == [("a", 1), ("b", 1)]


def test_another_slo_changes_marts_of_its_study_alone(tmp_path: Path) -> None:
    published(tmp_path, one_cell_study(), study="a")
    loose = Slo(name="loose", ttft_ms=101.0, tpot_ms=10.0)
    warehouse = published(tmp_path, one_cell_study(), study="b", slo=loose)
    attained = query(warehouse, "select study, slo_attainment_ratio from placement_ranking order by all")
    assert attained == [("a", 0.6), ("b", 1.0)]


def test_files_of_one_table_are_joined_and_a_repeated_one_counts_once(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1", one_cell_study("c")), write(tmp_path / "2", one_cell_study("d", seed=1))
    warehouse = tmp_path / "warehouse.duckdb"
    publish(warehouse, "s", {name: [*one[name], *two[name], *one[name]] for name in one}, reporting())
    assert query(warehouse, "select count(*) from requests") == [(200,)]


def test_a_trace_is_summed_up_once_however_many_seeds_load_it(tmp_path: Path) -> None:
    ledger = []
    for seed, read, dropped in ((0, 10, 2), (1, 10, 2), (1000, 10, 2)):
        ledger += [quality("real", "read", read, seed=seed), quality("real", "kept", read - dropped, seed=seed)]
        ledger += [quality("real", "dropped: x", dropped, seed=seed)]
    for seed, made in ((0, 100), (1, 107)):
        ledger += [quality("made", reason, made, "generated", seed) for reason in ("read", "kept")]
    ledger += [quality("made", "changed: z", 30, "generated", 1)]
    warehouse = published(tmp_path, one_cell_study() | {"trace_quality": ledger})
    assert query(warehouse, "select trace, load_count, read_rows, kept_rows, other_rows from trace_summary") == [
        ("made", 2, 104, 104, '{"changed: z":15}'),
        ("real", 3, 10, 8, '{"dropped: x":2}'),
    ]


@pytest.mark.parametrize("content", [b"not a database", b"", b"\0" * 20_000])
def test_a_file_that_is_no_warehouse_is_left_alone_and_explained(tmp_path: Path, content: bytes) -> None:
    warehouse = tmp_path / "warehouse.duckdb"
    warehouse.write_bytes(content)
    with pytest.raises(InputError, match="delete it and run your studies again") as error:
        published(tmp_path, one_cell_study())
    assert "\n" not in str(error.value)
    assert warehouse.read_bytes() == content
    assert leftovers(tmp_path) == ["warehouse.duckdb"]


def test_a_file_of_another_schema_is_explained(tmp_path: Path, old: Path) -> None:
    warehouse = Path(shutil.copy(old, tmp_path))
    with duckdb.connect(str(warehouse)) as con:
        con.execute("drop view stg_cells; alter table cells drop column capacity_per_s")
    with pytest.raises(InputError, match=r"cells\.capacity_per_s\); delete it"):
        published(tmp_path, one_cell_study())


@pytest.mark.parametrize(
    ("source", "is_calibrated"),
    [("silicon_interpolated", True), ("measured", True), ("scaled", False), ("datasheet", False)],
)
def test_calibrated_means_measured_on_this_very_hardware(source: str, is_calibrated: bool) -> None:
    nothing: Any = None
    assert Plant(nothing, {}, source, nothing).is_calibrated is is_calibrated


def test_a_wrong_file_or_table_is_refused(tmp_path: Path) -> None:
    paths = write(tmp_path / "parquet", one_cell_study())
    warehouse = tmp_path / "warehouse.duckdb"
    with pytest.raises(InputError, match="unknown table nonsense"):
        publish(warehouse, "s", paths | {"nonsense": []}, reporting())
    with pytest.raises(InputError, match=r"requests\.parquet: given as table cells"):
        publish(warehouse, "s", {"cells": paths["requests"]}, reporting())
    (torn := tmp_path / "torn" / "cells.parquet").parent.mkdir()
    torn.write_bytes(paths["cells"][0].read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read as parquet"):
        publish(warehouse, "s", {"cells": [torn]}, reporting())
    assert leftovers(tmp_path) == ["torn"]


def test_hostile_names_are_inert(tmp_path: Path, old: Path) -> None:
    folder = tmp_path / "it's [here]; --"
    folder.mkdir()
    warehouse = Path(shutil.copy(old, folder))
    names = ["x'; drop table cells; --", '"quoted"', "<b>", "ünï", "%s $study ?"]
    rows = study_of(*(with_met(cell(name, trace=name, tiers=name, eviction=name, cluster=name), 60) for name in names))
    publish(warehouse, names[0], write(folder / "parquet", rows), reporting())
    ranking = "select study, eviction, goodput_per_s from placement_ranking where study <> 'other' order by all"
    assert query(warehouse, ranking) == [(names[0], name, 6.0) for name in sorted(names)]
    assert query(warehouse, "select count(*) from cells") == [(len(names) + 1,)]


def test_every_table_and_column_is_explained(old: Path) -> None:
    silent = """
        select table_name from duckdb_tables() where coalesce(comment, '') = ''
        union all select view_name from duckdb_views() where not internal and coalesce(comment, '') = ''
        union all select table_name || '.' || column_name from duckdb_columns()
            where not internal and coalesce(comment, '') = ''
    """
    assert query(old, silent) == []
    said = "select comment from duckdb_columns() where table_name = ? and column_name = ?"
    assert query(old, said, "requests", "ttft_ms") == [("arrival at the router to the first output token [ms]",)]


def test_an_empty_study_has_empty_marts(tmp_path: Path) -> None:
    warehouse = published(tmp_path, {"cells": []})
    assert query(warehouse, "select count(*) from recommendation") == [(0,)]


def test_balance_counts_instances_that_were_never_chosen(tmp_path: Path) -> None:
    pools = '{"cluster": {"pools": [{"role": "decode", "count": 4}]}}'
    row = cell("c", stage="route", config=pools)
    decisions = [decision("c", i, "decode", 0) for i in range(6)]
    warehouse = published(tmp_path, study_of(with_met(row, 50), routing_decisions=decisions))
    ratios = "select decode_max_to_mean_ratio, prefill_max_to_mean_ratio from routing_ranking"
    assert query(warehouse, ratios) == [(4.0, None)]


def test_a_latency_that_is_nan_is_null(tmp_path: Path) -> None:
    rows = study_of((cell("c"), [request("c", 0, tpot_ms=math.nan, max_itl_ms=math.nan, output_tokens=1)]))
    assert query(published(tmp_path, rows), "select slo_attainment_ratio, tpot_p50_ms from cell_metrics") == [
        (1.0, None)
    ]
