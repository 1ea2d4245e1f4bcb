"""`Ledger`: what became of every row of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipeline.schema import TRACE_QUALITY
from pipeline.tables import from_rows
from pipeline.trace.request_trace import Ints

FIRST_ROWS_COUNT = 5
READ, KEPT = "read", "kept"
DROPPED, CHANGED, IGNORED, NOTED = "dropped: ", "changed: ", "ignored: ", "noted: "


class Ledger:
    """Counts rows by reason, with the first row numbers of each.

    A reason is `read`, `kept`, or starts with `dropped: `, `changed: ` (kept, but not as it stood), `ignored: ` (not a
    row: a blank line) or `noted: ` (kept as it stood). read = kept + dropped. A row number is the line in the file,
    from 1, header and blank lines included; for a generator, the request's number. lines: the line of each request,
    by the number that `add_all` is given, where these differ.
    """

    def __init__(self, trace: str, path: str, seed: int) -> None:
        self.trace = trace
        self.path = path
        self.seed = seed
        self.lines: Ints | None = None
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[int]] = {}
        self._requests: dict[str, list[Ints]] = {}

    def add(self, reason: str, row: int) -> None:
        """Count one row, by its line."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        first = self._first.setdefault(reason, [])
        if len(first) < FIRST_ROWS_COUNT and row not in first:
            first.append(row)

    def add_all(self, reason: str, requests: Ints | Iterable[int]) -> None:
        """Count many requests, by their numbers; what changed or is noted counts only if it is kept in the end."""
        listed = np.asarray(requests, dtype=np.int64)
        if listed.size:
            self._requests.setdefault(reason, []).append(listed)

    def line_of(self, request: int) -> int:
        """Line of a request."""
        return int(request if self.lines is None else self.lines[request])

    def _listed(self) -> dict[str, Ints]:
        """Numbers of the requests counted under each reason; of those that are not kept none is changed or noted."""
        listed = {reason: np.concatenate(parts) for reason, parts in self._requests.items()}
        kept = listed.get(KEPT, np.zeros(0, np.int64))
        return {
            reason: numbers[np.isin(numbers, kept)] if reason.startswith((CHANGED, NOTED)) else numbers
            for reason, numbers in listed.items()
        }

    def counts(self) -> dict[str, int]:
        """Rows by reason, in the order in which reasons came up; without those of no row, but for read and kept."""
        counts = {READ: 0, KEPT: 0} | self._counts
        for reason, numbers in self._listed().items():
            counts[reason] = counts.get(reason, 0) + int(numbers.size)
        return {reason: count for reason, count in counts.items() if count or reason in (READ, KEPT)}

    def _first_rows(self, reason: str, numbers: Ints) -> list[int]:
        """The first few lines, each once."""
        lines = numbers if self.lines is None else self.lines[numbers]
        few: list[int] = np.unique(lines)[:FIRST_ROWS_COUNT].tolist()
        return (self._first.get(reason, []) + few)[:FIRST_ROWS_COUNT]

    def table(self) -> pa.Table:
        """The ledger as TRACE_QUALITY: read, kept, then the other reasons in alphabetical order."""
        counts, listed = self.counts(), self._listed()
        if counts[READ] != counts[KEPT] + sum(count for reason, count in counts.items() if reason.startswith(DROPPED)):
            raise RuntimeError(f"{self.path}: rows read, kept and dropped do not add up: {counts}")
        return from_rows(
            TRACE_QUALITY,
            [
                {
                    "trace": self.trace,
                    "path": self.path,
                    "seed": self.seed,
                    "reason": reason,
                    "row_count": counts[reason],
                    "first_rows": json.dumps(self._first_rows(reason, listed.get(reason, np.zeros(0, np.int64)))),
                }
                for reason in [READ, KEPT, *sorted(counts.keys() - {READ, KEPT})]
            ],
        )
