"""The workflow as a user runs it: all stages, swaps that re-run what they must, edits that really take effect."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from pipeline.plan import OUTPUTS
from pipeline.schema import TABLES

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "conf", "profiles", "src", "workflow")
SMALL = "trace.session_count=12"


class Project:
    """A copy of the project in which commands are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = ""
        for part in PARTS:
            source = ROOT / part
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / part)

    def started(self, *arguments: str, settings: str = SMALL, study: str = "smoke") -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("KVPLAN_DATA", "PYTHONPATH", "NUMBA_CACHE_DIR")}
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        command += ["--config", f"study={study}", f"set={settings}"]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def snakemake(
        self, *arguments: str, settings: str = SMALL, study: str = "smoke"
    ) -> subprocess.CompletedProcess[str]:
        process = self.started(*arguments, settings=settings, study=study)
        out, err = process.communicate(timeout=600)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def jobs(self, settings: str = SMALL, targets: Sequence[str] = ()) -> dict[str, int]:
        """Jobs that would run, by rule."""
        done = self.snakemake(*targets, "-n", settings=settings)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE)
        return {rule: int(count) for rule, count in rows if rule not in ("total", "all")}

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with duckdb.connect(str(self.folder / "results" / "warehouse.duckdb"), read_only=True) as con:
            return con.execute(query).fetchall()

    def append(self, file: str, text: str) -> None:
        path = self.folder / file
        path.write_text(path.read_text() + text)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project after one run of the smoke study."""
    made = Project(tmp_path_factory.mktemp("kvplan"))
    done = made.snakemake()
    made.said = done.stdout + done.stderr
    assert done.returncode == 0, made.said
    return made


@pytest.mark.workflow
def test_all_stages_leave_their_rows(project: Project) -> None:
    counts = {name: project.ask(f"select count(*) from {name}")[0][0] for name in TABLES}
    assert [name for name, count in counts.items() if count == 0] == ["fidelity"]
    assert project.ask("select stage, count(*) from cells group by 1 order by 1") == [("place", 8), ("route", 4)]
    assert project.ask("select distinct study, is_calibrated from cells") == [("smoke", sys.platform == "linux")]
    assert project.ask("select count(*) from cells where measured_s < 1 or offered_per_s > 100") == [(0,)]
    results = project.folder / "results"
    assert "Where the KV cache lives" in (results / "summary.txt").read_text()
    assert (results / "report.html").read_text().startswith("<!doctype html>")
    assert not list(results.glob("**/.*partial*"))


@pytest.mark.workflow
def test_a_run_says_a_line_per_job_started_and_finished(project: Project) -> None:
    lines = project.said.splitlines()
    started = [match[1] for line in lines if (match := re.fullmatch(r" +\d+:\d\d start (.+)", line))]
    finished = [re.fullmatch(r" +\d+:\d\d done  (.+) \((\d+) of (\d+)\)", line) for line in lines]
    labels, counts, totals = zip(*(match.groups() for match in finished if match), strict=True)
    assert sorted(labels) == sorted([*started, "all"])
    assert counts == tuple(str(i + 1) for i in range(len(counts)))
    assert set(totals) == {str(len(counts))}
    assert "place: lru" in started
    assert not re.search("Reason|input:|output:|jobid|Select jobs|Execute|Snakefile:", project.said)
    assert max(map(len, lines)) <= 200


@pytest.mark.workflow
def test_nothing_runs_twice(project: Project) -> None:
    assert project.jobs() == {}


@pytest.mark.workflow
def test_a_killed_run_goes_on_by_the_same_command(project: Project) -> None:
    other = f"{SMALL} seed=3"
    killed = project.started(settings=other)
    assert killed.stderr is not None
    label = next(line.split("start place: ")[1].strip() for line in killed.stderr if "start place: " in line)
    results = project.folder / "results"
    (key,) = re.findall(rf"^place\t(\w+)\t{label}$", (results / "items/smoke.tsv").read_text(), re.MULTILINE)
    while not (results / f"logs/place/{key}.log").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    (results / "place" / key).mkdir(parents=True, exist_ok=True)
    for name in OUTPUTS["place"]:  # as if it had been killed just before it was done
        (results / "place" / key / name).write_text("half-written")
    assert "--unlock" in project.snakemake(settings=other).stderr
    assert project.snakemake("--unlock", settings=other).returncode == 0
    left = project.jobs(other)
    assert left["simulate_placement"] == 2
    assert "prepare_trace" not in left
    done = project.snakemake(settings=other)
    assert done.returncode == 0, done.stderr
    assert project.jobs(other) == {}


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("report_slo=paper_tight", {"aggregate": 1}),
        ("routing=round_robin,least_loaded", {"simulate_routing": 1, "aggregate": 1}),
        (
            "predictor=extra_trees",
            {
                "train_predictor": 1,
                "find_break_even": 1,
                "measure_capacity": 2,
                "simulate_placement": 2,
                "simulate_routing": 2,
                "aggregate": 1,
            },
        ),
    ],
)
def test_one_option_re_runs_what_depends_on_it(project: Project, settings: str, expected: dict[str, int]) -> None:
    assert project.jobs(f"{SMALL} {settings}") == expected


@pytest.mark.workflow
def test_swap_and_swap_back(project: Project) -> None:
    swapped = project.snakemake(settings=f"{SMALL} routing=round_robin,least_loaded")
    assert swapped.returncode == 0, swapped.stdout + swapped.stderr
    routers = project.ask("select distinct routing from cells where stage = 'route' order by 1")
    assert routers == [("least_loaded",), ("round_robin",)]
    assert project.jobs() == {"aggregate": 1}


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/pipeline/eviction/s3fifo.py", {"simulate_placement": 1, "aggregate": 1}),
        ("src/pipeline/routing/cost_model.py", {"simulate_routing": 1, "aggregate": 1}),
        ("src/pipeline/warehouse/sql/mart_ranking.sql", {"aggregate": 1}),
        ("src/pipeline/eviction/sieve.py", {}),
        ("src/pipeline/placement/break_even.py", {"find_break_even": 1, "aggregate": 1}),
        (
            "src/pipeline/serving/schedule.py",
            {
                "compile_kernels": 1,
                "measure_capacity": 2,
                "simulate_placement": 2,
                "simulate_routing": 2,
                "aggregate": 1,
            },
        ),
    ],
)
def test_an_edit_re_runs_the_jobs_it_can_change(project: Project, file: str, expected: dict[str, int]) -> None:
    project.snakemake()
    path = project.folder / file
    before = path.read_text()
    try:
        project.append(file, "\n-- edited\n" if file.endswith(".sql") else "\n# edited\n")
        assert project.jobs() == expected
    finally:
        path.write_text(before)


@pytest.mark.workflow
def test_targets_are_the_stages(project: Project) -> None:
    other = f"{SMALL} seed=7"
    assert project.jobs(other, ["calibrate"]) == {}
    assert set(project.jobs(other, ["place"])) == {"prepare_trace", "simulate_placement", "place"}
    assert set(project.jobs(other, ["route"])) == {"prepare_trace", "simulate_routing", "route"}


@pytest.mark.workflow
def test_a_users_own_file_is_described_before_any_study(project: Project) -> None:
    path = ROOT / "tests/data/mooncake_small.jsonl"
    settings = f"trace=auto trace.path={path} trace.block_tokens=4"
    done = project.snakemake("traffic", settings=settings)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"kvplan: trace=auto: {path} is read as trace=mooncake_file" in said
    assert "verdict: " in said
    (page,) = (project.folder / "results/describe").glob("*/card.html")
    assert "Reuse: LRU hits by cache size" in page.read_text()
    assert project.jobs(settings, ["traffic"]) == {}


@pytest.mark.workflow
def test_the_generator_is_fitted_to_a_users_own_file(project: Project) -> None:
    path = ROOT / "tests/data/claude_code_small.jsonl"
    done = project.snakemake("fit", settings=f"trace=auto trace.path={path} trace.block_tokens=4")
    said = done.stdout + done.stderr
    assert "read as trace=claude_code" in said
    if done.returncode:  # so few sessions may leave none to judge by, in one line
        assert "kvplan: " in said.strip().splitlines()[-1]
    else:
        assert (project.folder / "results/fit").glob("*/fitted.yaml")


@pytest.mark.workflow
@pytest.mark.parametrize(
    ("settings", "study", "line"),
    [
        ("eviction=lruu", "smoke", "kvplan: eviction: given 'lruu', expected one of arc, belady, ewma, fifo, "),
        ("", "nope", "kvplan: study: given 'nope', expected one of"),
    ],
)
def test_a_mistake_ends_in_one_line(project: Project, settings: str, study: str, line: str) -> None:
    done = project.snakemake("-n", settings=settings, study=study)
    assert done.returncode == 1
    said = [text for text in (done.stdout + done.stderr).splitlines() if text.strip()]
    assert said[0].startswith("Using workflow specific profile")  # Snakemake's, and not to be had otherwise
    assert len(said) == 2
    assert said[1].startswith(line)


@pytest.mark.workflow
def test_a_file_is_read_once_for_all_seeds(project: Project) -> None:
    good = ROOT / "tests" / "data" / "mooncake_small.jsonl"
    settings = f"trace=mooncake_file trace.path={good} trace.block_tokens=4 trace.max_requests=3 seed=range(0,4)"
    assert project.jobs(settings)["prepare_trace"] == 1
    assert project.jobs(f"{SMALL} seed=range(4,6)")["prepare_trace"] == 2


@pytest.mark.workflow
def test_a_bad_trace_fails_in_one_line_and_leaves_nothing_half_written(project: Project) -> None:
    bad = project.folder / "bad.jsonl"
    bad.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\nnonsense\n')
    done = project.snakemake(settings=f"trace=mooncake_file trace.path={bad}")
    output = done.stdout + done.stderr
    assert done.returncode == 1
    assert re.fullmatch(r"kvplan: .*bad\.jsonl, row 2: line: given 'nonsense', .*", output.splitlines()[-1]), output
    assert not re.search("Traceback|Error|Exiting|log:|input:", output), output
    assert project.ask("select count(*) from cells where trace = 'mooncake_file'") == [(0,)]
    assert not list((project.folder / "results").glob("**/.*partial*"))


NEXT_VICTIM = """
import sys
from pathlib import Path
sys.path.insert(0, "src")
from pipeline.provenance import set_numba_cache
set_numba_cache(Path("results"))
import numpy as np
from pipeline.eviction.lru import Lru
from pipeline.eviction.replay import misses
print(misses(Lru(), np.array([0, 1, 2, 0]), 3, 2))
"""


def test_an_edited_shared_kernel_really_runs_new_code(tmp_path: Path) -> None:
    """numba's own cache goes on running the old code when a callee in another module was edited."""
    project = Project(tmp_path)

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", NEXT_VICTIM], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    first = run()
    assert run() == first
    shared = project.folder / "src/pipeline/eviction/lists.py"
    shared.write_text(edited(shared.read_text()))
    assert run() != first


def edited(lists: str) -> str:
    """Turn the LRU into an MRU: a new block goes to the end that is evicted next."""
    newest, oldest = (
        "link_between(rows, rows[head, PREV], row, head)",
        "link_between(rows, head, row, rows[head, NEXT])",
    )
    assert newest in lists
    return lists.replace(newest, oldest)
