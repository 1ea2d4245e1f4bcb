"""Reader of BurstGPT's CSV traces (HPMLL/BurstGPT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from pipeline.trace.csv_rows import CsvLines, header_of
from pipeline.trace.file_source import FileSource
from pipeline.trace.rows import Row, RowError, name_in, number_in, time_ns, tokens

TIME, INPUTS, OUTPUTS, TOTAL, SESSION = (
    "Timestamp",
    "Request tokens",
    "Response tokens",
    "Total tokens",
    "Session ID",
)
COLUMNS = (TIME, "Model", INPUTS, OUTPUTS, TOTAL, "Log Type")


class BurstGptTrace(FileSource):
    """CSV with Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type (HPMLL/BurstGPT).

    Columns are told by name: the third file puts Session ID and Elapsed time behind the timestamp. Where Session ID is
    there, it makes sessions; an empty one (every API call of that file) is a request of its own. Sessions run open
    loop; Elapsed time, the recorded service, is not used.
    class_column: column that says which class a request is of; null gives all the trace's name.
    A failed request has no response tokens, and in the first file no request tokens either. A total that is not the sum
    contradicts its row, which is refused: nothing says which of the three is right.
    The trace has no prefixes: nothing can be reused.
    """

    class_column: Literal["Log Type", "Model"] | None

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the header has its columns."""
        return set(COLUMNS) <= set(header_of(lines))

    @override
    def parser(self) -> CsvLines:
        """Return a parser that takes the first line as header."""
        return CsvLines(COLUMNS, self._row, optional=(SESSION,))

    def _row(self, values: Mapping[str, str]) -> Row:
        outputs = tokens(number_in(values[OUTPUTS], OUTPUTS), OUTPUTS, 0)
        inputs = tokens(number_in(values[INPUTS], INPUTS), INPUTS, 1 if outputs else 0)
        total = tokens(number_in(values[TOTAL], TOTAL), TOTAL, 0)
        if total != inputs + outputs:
            raise RowError(TOTAL, f"given {total}, expected the sum of {inputs} request and {outputs} response tokens")
        return Row(
            time_ns(number_in(values[TIME], TIME), TIME, 1.0),
            inputs,
            outputs,
            values.get(SESSION, "").strip() or None,
            "" if self.class_column is None else name_in(values[self.class_column], self.class_column),
        )
