"""Reader of any CSV with one request a line, by a mapping of its columns."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from pipeline.trace.csv_rows import CsvLines, header_of
from pipeline.trace.table import COLUMNS_HINT, TableTrace


class CsvTrace(TableTrace):
    """CSV with a header. A row is one line; dates and times are ISO 8601.

    There are no prefixes: nothing can be reused.
    """

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the header has the columns that the option names by default."""
        return {"arrival_s", "input_tokens", "output_tokens"} <= set(header_of(lines))

    @override
    def parser(self) -> CsvLines:
        """Return a parser that takes the first line as header."""
        return CsvLines(self.columns(), self.row, COLUMNS_HINT)
