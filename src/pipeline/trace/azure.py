"""Reader of Azure's LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from pipeline.trace.csv_rows import CsvLines, header_of
from pipeline.trace.file_source import FileSource
from pipeline.trace.rows import Row, date_ns, number_in, tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureLlmTrace(FileSource):
    """CSV with TIMESTAMP (date and time, seven fractional digits, UTC), ContextTokens, GeneratedTokens.

    The trace has neither prefixes nor sessions: nothing can be reused, and every request is a session of its own.
    """

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the header has its columns."""
        return set(COLUMNS) <= set(header_of(lines))

    @override
    def parser(self) -> CsvLines:
        """Return a parser that takes the first line as header."""
        return CsvLines(COLUMNS, _row)


def _row(values: Mapping[str, str]) -> Row:
    arrival, inputs, outputs = (values[name] for name in COLUMNS)
    return Row(
        date_ns(arrival, COLUMNS[0]),
        tokens(number_in(inputs, COLUMNS[1]), COLUMNS[1], 1),
        tokens(number_in(outputs, COLUMNS[2]), COLUMNS[2], 0),
    )
