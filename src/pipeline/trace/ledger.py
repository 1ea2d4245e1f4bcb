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
    from 1, header and blank lines included; for a generator, the request's number.
    """

    def __init__(self, trace: str, path: str, seed: int) -> None:
        self.trace = trace
        self.path = path
        self.seed = seed
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[int]] = {}

    def add(self, reason: str, row: int) -> None:
        """Count one row."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        first = self._first.setdefault(reason, [])
        if len(first) < FIRST_ROWS_COUNT:
            first.append(row)

    def add_all(self, reason: str, rows: Ints | Iterable[int]) -> None:
        """Count many rows; no rows, no entry."""
        listed = np.sort(np.asarray(rows, dtype=np.int64))
        if listed.size:
            self._counts[reason] = self._counts.get(reason, 0) + int(listed.size)
            self._first[reason] = (self._first.get(reason, []) + listed[:FIRST_ROWS_COUNT].tolist())[:FIRST_ROWS_COUNT]

    def count(self, reason: str) -> int:
        """Rows counted under `reason`."""
        return self._counts.get(reason, 0)

    def dropped(self) -> dict[str, int]:
        """Rows dropped, by reason."""
        return {reason: count for reason, count in self._counts.items() if reason.startswith(DROPPED)}

    def table(self) -> pa.Table:
        """The ledger as TRACE_QUALITY: read, kept, then the other reasons in alphabetical order."""
        if self.count(READ) != self.count(KEPT) + sum(self.dropped().values()):
            raise RuntimeError(f"{self.path}: rows read, kept and dropped do not add up: {self._counts}")
        return from_rows(
            TRACE_QUALITY,
            [
                {
                    "trace": self.trace,
                    "path": self.path,
                    "seed": self.seed,
                    "reason": reason,
                    "row_count": self.count(reason),
                    "first_rows": json.dumps(self._first.get(reason, [])),
                }
                for reason in [READ, KEPT, *sorted(self._counts.keys() - {READ, KEPT})]
            ],
        )
