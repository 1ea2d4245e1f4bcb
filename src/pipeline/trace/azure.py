"""Reader of Azure's LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset)."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.trace.csv_rows import Header
from pipeline.trace.file_source import FileSource
from pipeline.trace.rows import Parser, Row, date_ns, number_in, tokens

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureLlmTrace(FileSource):
    """CSV with TIMESTAMP (date and time, seven fractional digits, UTC), ContextTokens, GeneratedTokens.

    The trace has neither prefixes nor sessions: nothing can be reused, and every request is a session of its own.
    """

    def parser(self) -> Parser:
        """Return a parser that takes the first line as header."""
        header: list[Header] = []

        def parse(text: str) -> Iterable[Row]:
            if not header:
                header.append(Header(text, COLUMNS))
                return ()
            arrival, inputs, outputs = header[0].values(text)
            return (
                Row(
                    date_ns(arrival, COLUMNS[0]),
                    tokens(number_in(inputs, COLUMNS[1]), COLUMNS[1], 1),
                    tokens(number_in(outputs, COLUMNS[2]), COLUMNS[2], 0),
                ),
            )

        return parse
