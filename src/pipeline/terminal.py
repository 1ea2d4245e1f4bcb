"""What a run says on the terminal: a line per job started and finished and, last and once, why it failed."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from snakemake_interface_logger_plugins.common import LogEvent

STOPPED = "kvplan: stopped before all jobs were done; the same command goes on from here"


class Terminal(logging.Handler):
    """Stands in for Snakemake's own terminal output while jobs run; its log keeps every detail."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(logging.INFO)
        self.stream = stream or sys.stderr
        self.start_s = time.monotonic()
        self.shows: Callable[[logging.LogRecord], object] = lambda _: False
        self.labels: dict[int, str] = {}
        self.finished: list[str] = []
        self.failures: dict[int, str] = {}
        self.errors: list[str] = []
        self.ends_in_failure = False

    def take_over(self, logger: logging.Logger) -> None:
        """Take the place of the handlers of `logger` that write to the terminal; they keep saying what is hidden."""
        for handler in list(logger.handlers):
            if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr):
                self.shows = handler.filter
                logger.removeHandler(handler)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Say a line for an event of a job; note why it failed. Warnings are passed on, other remarks are not."""
        event = getattr(record, "event", None)
        told = record.__dict__
        if event == LogEvent.JOB_INFO:
            self.labels[told["jobid"]] = told["rule_msg"] or told["rule_name"]
            if told["rule_msg"]:
                self.say(record, f"start {told['rule_msg']}")
        elif event == LogEvent.JOB_FINISHED:
            self.finished.append(self.labels.get(told["job_id"], "a job"))
            self.failures.pop(told["job_id"], None)  # of an earlier attempt
        elif event == LogEvent.PROGRESS:
            self.say(record, f"done  {', '.join(self.finished)} ({told['done']} of {told['total']})")
            self.finished.clear()
        elif event == LogEvent.JOB_ERROR:
            label = self.labels.get(told["jobid"], told["rule_name"])
            why = reason(label, told["log"])
            is_new = why not in self.failures.values()
            self.say(record, f"failed {label}" + (f"\n{why}" if is_new else ""))
            self.failures[told["jobid"]] = why
            self.ends_in_failure = is_new and bool(self.shows(record))
        elif record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
        elif record.levelno == logging.WARNING:
            self.say(record, record.getMessage())

    def say(self, record: logging.LogRecord, text: str) -> None:
        """Write a line, with the time since the start, unless the user wants no lines of this kind."""
        if self.shows(record):
            minutes, seconds = divmod(int(time.monotonic() - self.start_s), 60)
            print(f"{minutes:3d}:{seconds:02d} {text}", file=self.stream, flush=True)
            self.ends_in_failure = False

    def explain(self) -> None:
        """Say last why the run failed: what jobs said, or else Snakemake."""
        if not self.ends_in_failure:
            why = dict.fromkeys(self.failures.values()) or self.errors or [STOPPED]
            print(*why, sep="\n", file=self.stream, flush=True)


def reason(label: str, logs: Sequence[str]) -> str:
    """The line in which a job said why it failed; if it could not, the last that it said, and where."""
    last = ""
    for log in filter(Path.is_file, map(Path, logs)):
        last = (log.read_text(errors="replace").splitlines() or [""])[-1]
        if said := re.search(r"kvplan: .*", last):
            return said[0]
    return f"kvplan: {label}: failed (killed?); the last line of {', '.join(logs) or 'no log'}: {last or 'none'}"
