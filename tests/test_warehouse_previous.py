from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from test_warehouse_factory import (
    ROOT,
    one_cell_study,
    published,
)

from pipeline.spec import InputError
from pipeline.warehouse.previous import refuse_other_version


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("old"), one_cell_study(), study="other")


def test_a_warehouse_of_another_version_is_refused_before_anything_runs(tmp_path: Path, old: Path) -> None:
    refuse_other_version(tmp_path / "none.duckdb")
    refuse_other_version(old)
    warehouse = Path(shutil.copy(old, tmp_path))
    for change, said in (
        ("drop view stg_cells; alter table cells drop column has_prefixes", r"no BOOLEAN column cells\.has_prefixes"),
        ("alter table trace_quality alter seed type varchar", r"no BIGINT column trace_quality\.seed"),
        ("drop table report_slo cascade", r"no VARCHAR column report_slo\.study"),
    ):
        with duckdb.connect(str(warehouse)) as con:
            con.execute(change)
        with pytest.raises(InputError, match=rf"warehouse\.duckdb: not a warehouse of this version \(it has {said}"):
            refuse_other_version(warehouse)
        shutil.copy(old, warehouse)


@pytest.mark.parametrize("content", [b"not a database", b"", b"\0" * 20_000])
def test_a_file_that_is_no_warehouse_is_refused_before_anything_runs(tmp_path: Path, content: bytes) -> None:
    warehouse = tmp_path / "warehouse.duckdb"
    warehouse.write_bytes(content)
    with pytest.raises(InputError, match="delete it and run your studies again") as error:
        refuse_other_version(warehouse)
    assert "\n" not in str(error.value)
    assert warehouse.read_bytes() == content


HOLD = "import duckdb, sys; con = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


LOOK = """
import sys
from pathlib import Path
from pipeline.warehouse.previous import refuse_other_version
refuse_other_version(Path(sys.argv[1]))
print("duckdb" in sys.modules, flush=True)
"""


def test_a_warehouse_in_use_is_passed_over_and_none_costs_no_database(tmp_path: Path, old: Path) -> None:
    warehouse = Path(shutil.copy(old, tmp_path))
    with duckdb.connect(str(warehouse)) as con:
        con.execute("drop table report_slo cascade")
    look = [sys.executable, "-c", LOOK]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(warehouse)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        busy = subprocess.run([*look, str(warehouse)], env=environment, capture_output=True, text=True)
        holder.communicate("")
    none = subprocess.run([*look, str(tmp_path / "none")], env=environment, capture_output=True, text=True)
    assert (busy.stdout, none.stdout) == ("True\n", "False\n"), busy.stderr + none.stderr
