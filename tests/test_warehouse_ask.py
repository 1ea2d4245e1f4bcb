from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from test_warehouse_factory import (
    ROOT,
    published,
    two_stage_study,
)

from pipeline.spec import InputError
from pipeline.warehouse.ask import MOST_ROWS, ask


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("w"), two_stage_study())


def answer(warehouse: Path, query: str) -> str:
    out = io.StringIO()
    ask(warehouse, query, Console(file=out))
    return out.getvalue()


def test_ask_prints_a_table(warehouse: Path) -> None:
    text = answer(
        warehouse, 'select tiers, goodput_per_s as "[red]", null as n from placement_ranking order by 1 limit 1'
    )
    assert all(shown in text for shown in ("tiers", "[red]", "large", "9.1", "NULL"))
    assert f"the first {MOST_ROWS} rows" in answer(warehouse, "select request_id from requests")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_value_is_hidden_however_many_columns(warehouse: Path) -> None:
    query = "from recommendation limit 2"
    narrow = Terminal()
    ask(warehouse, query, Console(file=narrow, width=60, color_system=None))
    lines = narrow.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("row ") for line in lines) == 2
    names = [line.split()[0] for line in lines if line.strip()]
    assert {"study", "conclusion", "workload_id"} <= set(names)
    piped = answer(warehouse, query).splitlines()
    assert len(piped) == 6
    assert all(name in piped[1] for name in ("study", "conclusion", "workload_id"))
    assert "…" not in "".join(piped)


def test_a_value_wider_than_any_terminal_is_whole_in_a_pipe(warehouse: Path) -> None:
    assert "x" * 20_000 in answer(warehouse, "select repeat('x', 20000) as long")


def test_an_answer_without_rows_says_so(warehouse: Path) -> None:
    assert answer(warehouse, "select study, seed from cells where false") == "no rows; columns study, seed\n"


def test_an_answer_can_be_written_to_a_file_but_not_into_the_warehouse(warehouse: Path, tmp_path: Path) -> None:
    before = warehouse.read_bytes()
    assert "2" in answer(warehouse, f"copy (select distinct stage from cells order by 1) to '{tmp_path}/a.csv'")
    assert (tmp_path / "a.csv").read_text() == "stage\nplace\nroute\n"
    with pytest.raises(InputError, match="read-only"):
        answer(warehouse, "insert into cells select * from cells")
    assert warehouse.read_bytes() == before


def test_a_query_reaches_the_warehouse_as_it_was_typed(tmp_path: Path) -> None:
    """make, the shell and the environment change nothing of it, and the script needs no PYTHONPATH."""
    for part in ("Makefile", "src", "workflow"):
        (tmp_path / part).symlink_to(ROOT / part)
    (tmp_path / "bin").mkdir()
    stand_in = '#!/bin/sh\nprintf %s "$QUERY"\n'
    (tmp_path / "bin/python").write_text(stand_in)
    (tmp_path / "bin/python").chmod(0o755)
    typed = """select '$x $(y) $( ${z} `ls` $$ \\n #' as "a $b" -- it's\nfrom cells"""
    done = subprocess.run(
        ["make", "--silent", "-o", "env", "BIN=bin", "sql", f"Q={typed}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (typed, "")


def test_the_script_asks_the_warehouse_of_its_project_wherever_it_is_called(tmp_path: Path, warehouse: Path) -> None:
    project = tmp_path / "project"
    (project / "results").mkdir(parents=True)
    shutil.copytree(ROOT / "workflow/scripts", project / "workflow/scripts")
    (project / "src").symlink_to(ROOT / "src")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(project / "workflow/scripts/sql.py"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert re.fullmatch(r"kvplan: .*there is no warehouse; run a study first.*\n", ran("select 1").stderr)
    shutil.copy(warehouse, project / "results")
    assert "18" in ran("select count(*) from cells").stdout
    assert ran().stderr.startswith("kvplan: the query is empty")


@pytest.mark.parametrize("query", ["selec 1", "from nothing", "drop table cells", "", "-- no"])
def test_ask_explains_a_refused_query_in_one_line(warehouse: Path, query: str) -> None:
    with pytest.raises(InputError) as error:
        answer(warehouse, query)
    assert "\n" not in str(error.value)
