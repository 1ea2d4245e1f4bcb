"""`FileSource`: what all readers of files share: streaming, counting, sorting, windows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from pipeline.spec import Count, InputError, Positive
from pipeline.trace.base import TraceSource
from pipeline.trace.ledger import CHANGED, DROPPED, IGNORED, NOTED, READ, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.request_trace import Ints, RequestTrace
from pipeline.trace.rows import Left, LineParser, Row, RowError, shown
from pipeline.trace.selection import keep, take

BadRows = Literal["refuse", "drop"]


class FileSource(TraceSource):
    """A trace in a file with one or more requests a line. A subclass writes `parser`.

    path: plain, .gz or .zst; null where the environment variable that the option points to is not set.
    bad_rows: a row that cannot be read stops with InputError, or is dropped and counted.
    max_requests, window_s: use the first so many requests, or seconds, of what is left (null: all). A window keeps
    reuse within it intact, unlike a sample of requests, which destroys it.
    block_tokens: tokens per block of the file's hashes, or, where it has none, of the KV cache.
    magic: first bytes of every file of a format that is no text.

    Rows out of order are sorted by time (stable) and counted; blank lines are counted; a row without output is a
    failed request, dropped and counted. Sessions run open loop: every request comes at its recorded time.
    """

    magic: ClassVar[bytes] = b""

    path: str | None
    bad_rows: BadRows
    max_requests: Count | None
    window_s: Positive | None

    @classmethod
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether a file that begins with these lines is of this format; no, for a format that cannot be told."""
        _ = lines
        return False

    def parser(self) -> LineParser:
        """Make what reads the lines of one file."""
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
        for number, row in self.rows(read, ledger):
            columns.append(number, row)
        ledger.lines = _ints(columns.number)
        return self.arranged(*columns.trace(self.name, self.block_tokens, self.lists_blocks()), ledger)

    def arranged(self, trace: RequestTrace, arrival_ns: Ints, ledger: Ledger) -> RequestTrace:
        """Order requests that stand as in the file, arrivals from the earliest; arrival_ns (n,): the exact times."""
        late = arrival_ns < np.maximum.accumulate(arrival_ns) if arrival_ns.size else np.zeros(0, np.bool_)
        if not late.any():
            return trace if np.isnan(trace.think_s).all() else take(trace, np.arange(arrival_ns.size))
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

    def rows(self, read: ReadLines, ledger: Ledger) -> Iterator[tuple[int, Row]]:
        """Yield the requests of the file and the number of the line that each is counted under."""
        parser, number, raw, ids = self.parser(), 0, b"", set[Hashable]()
        for number, raw in enumerate(read(self.file()), 1):
            yield from self._counted(partial(_read_line, parser, raw, number), number, raw, ids, ledger)
        if not number:
            raise InputError(f"{ledger.path}: is empty, expected at least one request")
        if not raw.endswith(b"\n") and number > 1:
            ledger.add(NOTED + "last line without a line end (cut off?)", number)
        yield from self._counted(parser.end, number, raw, ids, ledger)

    def _counted(
        self, tell: Callable[[], Iterable[Row | Left]], number: int, raw: bytes, ids: set[Hashable], ledger: Ledger
    ) -> Iterator[tuple[int, Row]]:
        """Yield the requests that `tell` tells of and count all else; ids: those of all requests before."""
        try:
            for told in tell():
                at = told.number or number
                if isinstance(told, Left):
                    if told.is_request:
                        ledger.add(READ, at)
                    ledger.add((DROPPED if told.is_request else NOTED if told.is_kept else IGNORED) + told.reason, at)
                    continue
                if told.request_id is not None:
                    if told.request_id in ids:
                        raise RowError("request id", f"given {shown(told.request_id)}, which a row before it has")
                    ids.add(told.request_id)
                ledger.add(READ, at)
                if told.output_tokens:
                    yield at, told
                else:
                    ledger.add(DROPPED + "no output (failed request)", at)
        except RowError as exc:
            self._refuse_or_drop(exc, number, raw, ledger)

    def _refuse_or_drop(self, error: RowError, number: int, raw: bytes, ledger: Ledger) -> None:
        cut = "" if raw.endswith(b"\n") or number == 1 else " (the last line, and without a line end: cut off?)"
        if error.fatal or self.bad_rows == "refuse":
            raise InputError(f"{ledger.path}, row {number}: {error}{cut}")
        for _ in range(error.requests):
            ledger.add(READ, number)
            ledger.add(DROPPED + ("last line, cut off" if cut else f"unreadable {error.field}"), number)


def _read_line(parser: LineParser, raw: bytes, number: int) -> Iterable[Row | Left]:
    text = _text(raw, number)
    return parser.line(text, number) if text else (Left("blank line", is_request=False),)


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
        self.block_ids, self.think_s = array("Q"), array("d")
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
        self.think_s.append(row.think_s)
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
            request_id=np.arange(len(self.number)),
            session_id=_ints(self.session_id),
            class_id=_ints(self.class_id),
            arrival_s=(arrival_ns - arrival_ns.min(initial=2**63 - 1)) / 1e9,
            think_s=np.array(self.think_s),
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
