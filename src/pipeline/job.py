"""What every job does around its work: read its item, log, say progress, fail in one line."""

from __future__ import annotations

import json
import logging
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
        logging.getLogger("kvplan").info("%s %s: %s", self.stage, self.label, text)

    def progress(self, things: Sequence[T], what: str) -> Iterator[T]:
        """Yield `things`, saying now and then how many are done."""
        start = last = time.monotonic()
        for done, thing in enumerate(things):
            now = time.monotonic()
            if now - last >= SECONDS_BETWEEN_PROGRESS:
                last = now
                self.say(f"{done} of {len(things)} {what} after {now - start:.0f} s")
            yield thing
        self.say(f"{len(things)} {what} in {time.monotonic() - start:.1f} s")


def run(work: Any, arguments: Iterable[str] | None = None) -> None:
    """Run `work(job)` for the command line ITEM.json OUT_FOLDER LOG.

    A mistake of the user ends in one line on the terminal and exit status 1; anything else in one line that names the
    log, where the traceback is.
    """
    item, out, log = map(Path, sys.argv[1:] if arguments is None else arguments)
    results = item.parents[2]
    set_numba_cache(results)
    _start_logging(log)
    try:
        job = Job(**json.loads(item.read_text()), results=results, out=out)
        work(job)
    except InputError as exc:
        _fail(f"kvplan: {exc}")
    except Exception as exc:
        logging.getLogger("kvplan.trace").exception("unexpected")
        _fail(f"kvplan: internal error in {item.parent.name} ({type(exc).__name__}: {exc}); traceback in {log}")


def _start_logging(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    to_file = logging.FileHandler(log, mode="w")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    to_terminal = logging.StreamHandler(sys.stderr)
    to_terminal.setFormatter(logging.Formatter("%(message)s"))
    to_terminal.addFilter(lambda record: record.name == "kvplan")
    logging.basicConfig(level=logging.INFO, handlers=[to_file, to_terminal], force=True)


def _fail(line: str) -> None:
    logging.getLogger("kvplan").error(line)
    raise SystemExit(1)
