"""What a run says on the terminal, from the events that Snakemake logs and the logs that jobs leave."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from pipeline.job import Job, run
from pipeline.spec import InputError
from pipeline.terminal import STOPPED, Terminal


class Run:
    """A logger as Snakemake's, its handler for the terminal replaced."""

    def __init__(self, shows: Callable[[logging.LogRecord], bool] = lambda _: True) -> None:
        self.out = io.StringIO()
        self.logger = logging.Logger("as Snakemake's")
        usual = logging.StreamHandler(sys.stderr)
        usual.addFilter(shows)
        self.logger.addHandler(usual)
        self.terminal = Terminal(self.out)
        self.terminal.take_over(self.logger)

    def tell(self, event: LogEvent | None, level: int = logging.INFO, message: str = "noise", **told: object) -> None:
        self.logger.log(level, message, extra={"event": event, **told} if event else told)

    def start(self, jobid: int, label: str) -> None:
        self.tell(LogEvent.JOB_INFO, jobid=jobid, rule_msg=label, rule_name="a_rule")

    def finish(self, jobid: int, done: int, total: int) -> None:
        self.tell(LogEvent.JOB_FINISHED, job_id=jobid)
        self.tell(LogEvent.PROGRESS, done=done, total=total)

    def fail(self, jobid: int, log: Path) -> None:
        self.tell(LogEvent.JOB_ERROR, logging.ERROR, jobid=jobid, rule_name="a_rule", log=[str(log)])
        self.tell(LogEvent.ERROR, logging.ERROR, "RuleException: CalledProcessError in line 22")

    def said(self) -> list[str]:
        return [line[7:] if line[:6].strip(" 0123456789") == ":" else line for line in self.out.getvalue().splitlines()]


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    log = tmp_path / "bad.log"
    log.write_text("2026-01-01 kvplan trace: x\n2026-01-01 kvplan kvplan: mine.jsonl, row 2: nonsense\n")
    return log


def test_a_line_per_job_started_and_finished() -> None:
    run = Run()
    run.tell(None, message="Select jobs to execute...")
    run.start(3, "trace: chat")
    run.tell(LogEvent.JOB_STARTED, message="Execute 1 jobs...")
    run.finish(3, 1, 2)
    run.tell(None, logging.WARNING, "the file system is slow")
    run.tell(LogEvent.JOB_INFO, jobid=0, rule_msg=None, rule_name="all")
    run.finish(0, 2, 2)
    assert run.said() == [
        "start trace: chat",
        "done  trace: chat (1 of 2)",
        "the file system is slow",
        "done  all (2 of 2)",
    ]
    assert len(run.logger.handlers) == 1


def test_a_failure_is_said_once_and_last(bad: Path) -> None:
    run = Run()
    run.start(1, "trace: a")
    run.start(2, "trace: b")
    run.start(3, "compile")
    run.fail(1, bad)
    run.fail(2, bad)
    run.tell(None, logging.ERROR, "Exiting because a job execution failed. Look above for error messages")
    run.finish(3, 1, 4)
    run.terminal.explain()
    run.tell(LogEvent.ERROR, logging.ERROR, "WorkflowError: At least one job did not complete successfully.")
    why = "kvplan: mine.jsonl, row 2: nonsense"
    assert run.said()[3:] == ["failed trace: a", why, "failed trace: b", "done  compile (1 of 4)", why]


def test_a_failure_that_is_last_already_is_not_repeated(bad: Path) -> None:
    run = Run()
    run.start(1, "trace: a")
    run.fail(1, bad)
    run.terminal.explain()
    assert run.said() == ["start trace: a", "failed trace: a", "kvplan: mine.jsonl, row 2: nonsense"]


def test_quiet_holds_for_all_but_the_failure(bad: Path) -> None:
    run = Run(shows=lambda _: False)
    run.start(1, "trace: a")
    run.fail(1, bad)
    run.terminal.explain()
    assert run.said() == ["kvplan: mine.jsonl, row 2: nonsense"]


def test_another_attempt_makes_good(bad: Path, tmp_path: Path) -> None:
    run = Run()
    run.start(1, "trace: a")
    run.fail(1, bad)
    run.start(1, "trace: a")
    run.finish(1, 1, 2)
    run.start(2, "place: b")
    run.fail(2, tmp_path / "none.log")
    run.start(3, "route: c")
    run.terminal.explain()
    why = f"kvplan: place: b: failed (killed?); the last line of {tmp_path}/none.log: none"
    assert run.said()[-4:] == ["failed place: b", why, "start route: c", why]


def test_what_a_killed_job_said_last_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("Traceback\nOSError: [Errno 28] No space left on device\n")
    run = Run()
    run.start(1, "compile")
    run.fail(1, log)
    assert run.said()[-1].endswith("job.log: OSError: [Errno 28] No space left on device")


@pytest.mark.parametrize(
    ("errors", "last"), [(["MissingOutputException: no file"], "MissingOutputException: no file"), ([], STOPPED)]
)
def test_a_run_that_ends_without_a_failed_job(errors: list[str], last: str) -> None:
    run = Run()
    for error in errors:
        run.tell(LogEvent.ERROR, logging.ERROR, error)
    run.terminal.explain()
    assert run.said() == [last]


def run_job(folder: Path, work: Callable[[Job], None]) -> Path:
    """The log of a job that does `work`; it must fail."""
    item = folder / "items" / "place" / "0123456789ab.json"
    item.parent.mkdir(parents=True)
    item.write_text(json.dumps({"stage": "place", "label": "lru", "config": {}, "upstream": {}, "code": ""}))
    log = folder / "job.log"
    before = logging.root.handlers[:]
    try:
        with pytest.raises(SystemExit) as ended:
            run(work, [str(item), str(folder / "out"), str(log)])
    finally:
        logging.root.handlers[:] = before
    assert ended.value.code == 1
    return log


def raising(error: BaseException) -> Callable[[Job], None]:
    def work(job: Job) -> None:
        job.say("hard at work")
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "last", "has_traceback"),
    [
        (InputError("mine.csv, row 2:\nnonsense"), "kvplan: mine.csv, row 2: nonsense", False),
        (KeyError("x"), "kvplan: place: internal error (KeyError: 'x'); traceback in ", True),
        (
            OSError(28, "No space left on device"),
            "kvplan: place: [Errno 28] No space left on device; traceback in ",
            True,
        ),
        (KeyboardInterrupt(), "kvplan: stopped; the same command goes on from here", False),
    ],
)
def test_a_job_says_why_it_failed_in_the_last_line_of_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: BaseException, last: str, has_traceback: bool
) -> None:
    lines = run_job(tmp_path, raising(error)).read_text().splitlines()
    assert last in lines[-1]
    assert any("Traceback" in line for line in lines) is has_traceback
    assert capsys.readouterr().err.strip() == "place: lru: hard at work"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_a_full_disk_has_no_room_for_goes_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.log").symlink_to("/dev/full")
    run_job(tmp_path, raising(InputError("mine.csv, row 2: nonsense")))
    assert capsys.readouterr().err.split("\n")[1:] == ["kvplan: mine.csv, row 2: nonsense", ""]
