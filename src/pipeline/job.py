"""What every job does around its work: read its item, log, say progress, fail in one line."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.provenance import set_numba_cache
from pipeline.spec import InputError

T = TypeVar("T")
SECONDS_BETWEEN_PROGRESS = 5.0
EACH = 1000
"""Things between two looks at the clock."""
INDENT = " " * 13
"""Puts what a job says under its name in the lines of terminal.py."""


@dataclass(frozen=True)
class Job:
    """One job: its item's content, the folder of results it may read, and where it writes."""

    stage: str
    label: str
    config: Mapping[str, Any]
    upstream: Mapping[str, Sequence[str]]
    code: str
    results: Path
    out: Path

    def folder(self, stage: str, key: str) -> Path:
        """Folder of an upstream job's results."""
        return self.results / stage / key

    def only(self, stage: str) -> Path:
        """Folder of the single upstream job of `stage`."""
        (key,) = self.upstream[stage]
        return self.folder(stage, key)

    def say(self, text: str) -> None:
        """Say something to the user, in the log and on the terminal."""
        logging.getLogger("kvplan").info("%s: %s: %s", self.stage, self.label, text)

    def progress(self, things: Sequence[T], what: str) -> Iterator[T]:
        """Yield `things`, saying now and then how many are done; the log also says how long all took."""
        start = last = time.monotonic()
        for done, thing in enumerate(things):
            now = time.monotonic()
            if now - last >= SECONDS_BETWEEN_PROGRESS:
                last = now
                self.say(f"{done} of {len(things)} {what} after {now - start:.0f} s")
            yield thing
        logging.getLogger("kvplan.progress").info("%d %s in %.1f s", len(things), what, time.monotonic() - start)

    def watched(self, things: Iterable[T], what: str) -> Iterator[T]:
        """Yield things of which nobody knows how many there are, saying now and then how many came."""
        start = last = time.monotonic()
        for done, thing in enumerate(things, 1):
            yield thing
            if done % EACH == 0 and time.monotonic() - last >= SECONDS_BETWEEN_PROGRESS:
                last = time.monotonic()
                self.say(f"{done:,} {what} after {last - start:.0f} s")


def run(work: Any, arguments: Iterable[str] | None = None) -> None:
    """Run `work(job)` for the command line ITEM.json OUT_FOLDER LOG.

    A failure ends in exit status 1 and one last line in the log, from where terminal.py takes it: what the user got
    wrong, or else where the traceback is.
    """
    item, out, log = map(Path, sys.argv[1:] if arguments is None else arguments)
    results = item.parents[2]
    if "NUMBA_CACHE_DIR" not in os.environ:  # started by hand: the Snakefile sets it for its jobs
        set_numba_cache(results)
    _start_logging(log)
    try:
        job = Job(**json.loads(item.read_text()), results=results, out=out)
        work(job)
    except InputError as exc:
        _fail(str(exc))
    except KeyboardInterrupt:
        _fail("stopped; the same command goes on from here")
    except Exception as exc:
        logging.getLogger("kvplan.trace").exception("unexpected")
        what = f"{exc}" if isinstance(exc, OSError) else f"internal error ({type(exc).__name__}: {exc})"
        _fail(f"{item.parent.name}: {what}; traceback in {log}")


class _LogFile(logging.FileHandler):
    """The log; on a full disk, what is said last goes to the terminal in its place."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if record.name == "kvplan" and record.levelno >= logging.ERROR:
            print(record.getMessage(), file=sys.stderr)


def _start_logging(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    to_file = _LogFile(log, mode="w")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    to_terminal = logging.StreamHandler(sys.stderr)
    to_terminal.setFormatter(logging.Formatter(INDENT + "%(message)s"))
    to_terminal.addFilter(lambda record: record.name == "kvplan" and record.levelno < logging.ERROR)
    logging.basicConfig(level=logging.INFO, handlers=[to_file, to_terminal], force=True)


def _fail(why: str) -> None:
    logging.getLogger("kvplan").error("kvplan: %s", " ".join(why.split()))
    raise SystemExit(1)
