"""Generator of questions about documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar

from pipeline.spec import Count, NonNegative
from pipeline.trace.draws import Draws, Floats, LogNormal, Mean, choose, geometric, zipf_cumulative
from pipeline.trace.sessions import (
    FIRST,
    PREFIX,
    TURNS,
    Lines,
    Prefix,
    SessionSource,
    Turn,
    conversation,
    shared_prefixes,
)


class DocumentQaTrace(SessionSource):
    """Questions over the documents of a corpus; the prefix is the document.

    * Corpus: `document_count` documents behind one instruction of fixed length `instruction_tokens`; document lengths
      lognormal `document_tokens`, drawn once each.
    * A session reads one document: the k-th most popular with probability proportional to 1/k^`zipf_exponent`,
      independent of its length.
    * Questions of a session: geometric with mean `turns_mean_count`, at least 1; each prompt is instruction, document,
      earlier questions and answers, and a new question, lognormal `question_tokens`.
    * Answer: lognormal `output_tokens`. From an answer to the next question: lognormal `think_s`.
    * Session starts: Poisson with rate `sessions_per_s`. All draws are independent.
    """

    component: ClassVar[str] = "document_qa"

    document_count: Count
    zipf_exponent: NonNegative
    instruction_tokens: Count
    document_tokens: LogNormal
    turns_mean_count: Mean
    question_tokens: LogNormal
    output_tokens: LogNormal
    think_s: LogNormal

    @cached_property
    def _popularity(self) -> Floats:
        return zipf_cumulative(self.document_count, self.zipf_exponent)

    def prefixes(self, lines: Lines, seed: int) -> list[Prefix]:
        """Return the documents, most popular first."""
        instruction = Prefix(lines.add(), self.instruction_tokens)
        count, length_tokens = self.document_count, self.document_tokens
        return shared_prefixes(lines, seed, "document_qa.documents", count, length_tokens, instruction)

    def session(self, lines: Lines, prefixes: Sequence[Prefix], draws: Draws) -> Iterator[Turn]:
        """Yield the questions of one reader."""
        document = prefixes[choose(self._popularity, draws.at(0, PREFIX))]
        start = Prefix(lines.add(document), document.tokens + self.question_tokens.whole(draws.at(0, FIRST)))
        turn_count = geometric(self.turns_mean_count, draws.at(0, TURNS))
        yield from conversation(start, turn_count, self.question_tokens, self.output_tokens, self.think_s, draws, 1)
