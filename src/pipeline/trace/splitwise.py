"""Reader of the request traces of splitwise-sim (Mutinifni/splitwise-sim)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import override

from pipeline.trace.csv_rows import CsvLines, header_of
from pipeline.trace.file_source import FileSource
from pipeline.trace.rows import Row, RowError, name_in, number_in, shown, time_ns, tokens

ID, KIND, APPLICATION, TIME, BATCH, INPUTS, OUTPUTS = COLUMNS = (
    "request_id",
    "request_type",
    "application_id",
    "arrival_timestamp",
    "batch_size",
    "prompt_size",
    "token_size",
)
GENERATIVE_LLM = 2


class SplitwiseTrace(FileSource):
    """CSV with request_id, request_type, application_id, arrival_timestamp (s), batch_size, prompt_size, token_size.

    Format of Mutinifni/splitwise-sim. A request_id comes once. Only request_type 2 (generation) and batch_size 1 are
    read: its simulator knows no other type, and a batch of several is several requests of unknown lengths.
    class_column: application_id makes one class of each application; null gives all the trace's name.
    The trace has neither prefixes nor sessions: nothing can be reused, and every request is a session of its own.
    """

    class_column: Literal["application_id"] | None

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the header has its columns."""
        return set(COLUMNS) <= set(header_of(lines))

    @override
    def parser(self) -> CsvLines:
        """Return a parser that takes the first line as header."""
        return CsvLines(COLUMNS, self._row)

    def _row(self, values: Mapping[str, str]) -> Row:
        _expect(values, KIND, GENERATIVE_LLM, "generation by an LLM")
        _expect(values, BATCH, 1, "one prompt a request")
        return Row(
            time_ns(number_in(values[TIME], TIME), TIME, 1.0),
            tokens(number_in(values[INPUTS], INPUTS), INPUTS, 1),
            tokens(number_in(values[OUTPUTS], OUTPUTS), OUTPUTS, 0),
            class_name="" if self.class_column is None else f"application {name_in(values[APPLICATION], APPLICATION)}",
            request_id=name_in(values[ID], ID),
        )


def _expect(values: Mapping[str, str], field: str, expected: int, meaning: str) -> None:
    if number_in(values[field], field) != expected:
        raise RowError(field, f"given {shown(values[field])}, expected {expected} ({meaning})")
