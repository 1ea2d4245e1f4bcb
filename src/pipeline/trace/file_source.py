"""`FileSource`: what all readers of files share: streaming, counting, sorting, windows."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from pipeline.spec import Count, InputError, Positive
from pipeline.trace.base import TraceSource
from pipeline.trace.ledger import CHANGED, DROPPED, IGNORED, READ, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.request_trace import Ints, RequestTrace
from pipeline.trace.rows import Parser, Row, RowError
from pipeline.trace.selection import keep, take

BadRows = Literal["refuse", "drop"]


class FileSource(TraceSource):
    """A trace in a file with one or more requests a line. A subclass writes `parser`.

    path: plain, .gz or .zst; null where the environment variable that the option points to is not set.
    bad_rows: a row that cannot be read stops with InputError, or is dropped and counted.
    max_requests, window_s: use the first so many requests, or seconds, of what is left (null: all). A window keeps
    reuse within it intact, unlike a sample of requests, which destroys it.
    block_tokens: tokens per block of the file's hashes, or, where it has none, of the KV cache.

    Rows out of order are sorted by time (stable) and counted; blank lines are counted; a row without output is a
    failed request, dropped and counted. Sessions run open loop: every request comes at its recorded time.
    """

    path: str | None
    bad_rows: BadRows
    max_requests: Count | None
    window_s: Positive | None

    def parser(self) -> Parser:
        """Return the function that turns each line of one file into rows."""
        raise NotImplementedError

    def lists_blocks(self) -> bool:
        """Whether the file carries prefix hashes."""
        return False

    def file(self) -> Path:
        """Path of the file. Raises InputError if none is known."""
        if self.path is None:
            raise InputError("trace.path: KVPLAN_DATA is not set; give trace.path=FILE")
        try:
            return Path(self.path).expanduser()
        except RuntimeError:  # a home that is not known: the name is meant as it stands
            return Path(self.path)

    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Read the file into a trace ordered by time; nothing is drawn."""
        del seed
        columns = _Columns()
        for number, row in self._rows(read(self.file()), ledger):
            columns.append(number, row)
        trace, arrival_ns = columns.trace(self.name, self.block_tokens, self.lists_blocks())
        late = arrival_ns < np.maximum.accumulate(arrival_ns) if arrival_ns.size else np.zeros(0, np.bool_)
        if not late.any():
            return trace
        ledger.add_all(CHANGED + "earlier than a row before it, sorted by time", trace.request_id[late])
        return take(trace, np.argsort(arrival_ns, kind="stable"))

    def window(self, trace: RequestTrace, ledger: Ledger) -> RequestTrace:
        """Keep the first `window_s` seconds and `max_requests` requests."""
        if self.window_s is not None and trace.request_count:
            inside = trace.arrival_s - trace.arrival_s[0] < self.window_s
            trace = keep(trace, inside, "behind the window (window_s)", ledger)
        if self.max_requests is not None:
            inside = np.arange(trace.request_count) < self.max_requests
            trace = keep(trace, inside, "behind the window (max_requests)", ledger)
        return trace

    def _rows(self, lines: Iterator[bytes], ledger: Ledger) -> Iterator[tuple[int, Row]]:
        parse, number = self.parser(), 0
        for number, raw in enumerate(lines, 1):
            try:
                text = _text(raw, number)
                if not text:
                    ledger.add(IGNORED + "blank line", number)
                    continue
                rows = parse(text)
            except RowError as exc:
                self._refuse_or_drop(exc, number, raw, ledger)
                continue
            for row in rows:
                ledger.add(READ, number)
                if row.output_tokens:
                    yield number, row
                else:
                    ledger.add(DROPPED + "no output (failed request)", number)
        if not number:
            raise InputError(f"{ledger.path}: is empty, expected at least one request")

    def _refuse_or_drop(self, error: RowError, number: int, raw: bytes, ledger: Ledger) -> None:
        cut = "" if raw.endswith(b"\n") or number == 1 else " (the last line, and without a line end: cut off?)"
        if error.fatal or self.bad_rows == "refuse":
            raise InputError(f"{ledger.path}, row {number}: {error}{cut}")
        ledger.add(READ, number)
        ledger.add(DROPPED + ("last line, cut off" if cut else f"unreadable {error.field}"), number)


def _text(raw: bytes, number: int) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as exc:
        raise RowError("line", f"not UTF-8 text ({exc.reason} at byte {exc.start})") from None
    if "\0" in text:
        raise RowError("line", "holds NUL characters, expected UTF-8 text (UTF-16? never written whole?)")
    return (text.removeprefix("\ufeff") if number == 1 else text).strip()


class _Columns:
    """Rows as growing typed arrays: 8 bytes a field and 8 a block."""

    def __init__(self) -> None:
        self.number, self.arrival_ns, self.input_tokens, self.output_tokens = (array("q") for _ in range(4))
        self.session_id, self.class_id, self.offset = array("q"), array("q"), array("q", [0])
        self.block_ids = array("Q")
        self.session_count = 0
        self.sessions: dict[Hashable, int] = {}
        self.classes: dict[str, int] = {}

    def append(self, number: int, row: Row) -> None:
        self.number.append(number)
        self.arrival_ns.append(row.arrival_ns)
        self.input_tokens.append(row.input_tokens)
        self.output_tokens.append(row.output_tokens)
        self.session_id.append(self._session_id(row.session))
        self.class_id.append(self.classes.setdefault(row.class_name, len(self.classes)))
        self.block_ids.extend(row.block_ids)
        self.offset.append(len(self.block_ids))

    def _session_id(self, session: Hashable | None) -> int:
        """Number sessions in order of appearance; a request of none is one of its own, and is not remembered."""
        known = self.session_count if session is None else self.sessions.setdefault(session, self.session_count)
        self.session_count += known == self.session_count
        return known

    def trace(self, name: str, block_tokens: int, lists_blocks: bool) -> tuple[RequestTrace, Ints]:
        """Return the trace in the file's order, arrivals from its earliest, and the exact times in ns."""
        arrival_ns = _ints(self.arrival_ns)
        trace = RequestTrace(
            name=name,
            block_tokens=block_tokens,
            classes=tuple(label or name for label in self.classes),
            request_id=_ints(self.number),
            session_id=_ints(self.session_id),
            class_id=_ints(self.class_id),
            arrival_s=(arrival_ns - arrival_ns.min(initial=2**63 - 1)) / 1e9,
            think_s=np.full(arrival_ns.size, np.nan),
            input_tokens=_ints(self.input_tokens),
            output_tokens=_ints(self.output_tokens),
            block_offset=_ints(self.offset),
            block_ids=_ints(self.block_ids),
            has_prefixes=lists_blocks,
        )
        return trace, arrival_ns


def _ints(values: array[int]) -> Ints:
    # uint64 block ids are carried as the int64 of equal bits until they are numbered.
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, np.int64)
