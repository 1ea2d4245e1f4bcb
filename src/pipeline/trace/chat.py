"""Generator of multi-turn chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pipeline.spec import Count
from pipeline.trace.draws import Draws, LogNormal, Mean, geometric
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


class ChatTrace(SessionSource):
    """People talking to one of a few applications; the history is sent again with every turn.

    * System prompt: one of `system_prompt_count`, uniformly; length lognormal `system_prompt_tokens`, drawn once each.
    * Turns of a session: geometric with mean `turns_mean_count`, at least 1.
    * A turn's prompt: system prompt, all earlier messages and answers, and a new message, lognormal `user_tokens`; the
      first message of a session lognormal `first_user_tokens` (null: as the others).
    * Answer: lognormal `output_tokens`. From an answer to the next message: lognormal `think_s`.
    * Session starts: Poisson with rate `sessions_per_s`. All draws are independent.
    """

    component: ClassVar[str] = "chat"

    system_prompt_count: Count
    system_prompt_tokens: LogNormal
    turns_mean_count: Mean
    first_user_tokens: LogNormal | None
    user_tokens: LogNormal
    output_tokens: LogNormal
    think_s: LogNormal

    def prefixes(self, lines: Lines, seed: int) -> list[Prefix]:
        """Return the system prompts."""
        return shared_prefixes(lines, seed, "chat.prompts", self.system_prompt_count, self.system_prompt_tokens)

    def session(self, lines: Lines, prefixes: Sequence[Prefix], draws: Draws) -> Iterator[Turn]:
        """Yield the turns of one chat."""
        prompt = prefixes[int(draws.at(0, PREFIX) * len(prefixes))]
        first = self.first_user_tokens or self.user_tokens
        start = Prefix(lines.add(prompt), prompt.tokens + first.whole(draws.at(0, FIRST)))
        turn_count = geometric(self.turns_mean_count, draws.at(0, TURNS))
        yield from conversation(start, turn_count, self.user_tokens, self.output_tokens, self.think_s, draws, 1)
