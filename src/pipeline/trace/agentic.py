"""Generator of agents that hand work to sub-agents and compact their context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import model_validator

from pipeline.spec import Count, Ratio
from pipeline.trace.draws import Draws, LogNormal, Mean, geometric
from pipeline.trace.sessions import (
    FIRST,
    NEW,
    OUTPUT,
    PREFIX,
    THINK,
    TURNS,
    Lines,
    Prefix,
    SessionSource,
    Turn,
    shared_prefixes,
)

FAN_OUT, SUBAGENTS, SUBAGENT_KIND, SUBAGENT_TURNS, INSTRUCTION = range(3, 8)
"""Further slots of a turn's draws: whether it fans out, to how many; of a sub-agent's first turn: what it is."""


@dataclass
class _Context:
    """What an agent has in its prompt: the first `tokens` of a line that begins with `prefix`."""

    lines: Lines
    prefix: Prefix
    tokens: int
    line: int = field(init=False)

    def __post_init__(self) -> None:
        self.line = self.lines.add(self.prefix)

    def asked(self, output_tokens: int, think_s: float) -> Turn:
        turn = Turn(self.line, self.tokens, output_tokens, think_s)
        self.tokens += output_tokens
        return turn

    def compact(self, summary_tokens: int) -> None:
        self.line, self.tokens = self.lines.add(self.prefix), self.prefix.tokens + summary_tokens


class AgenticTrace(SessionSource):
    """Teams of agents: a lead in a long tool loop, sub-agents with contexts of their own, contexts that are compacted.

    * Lead: starts from one of `lead_prefix_count` shared prefixes (instructions and tools), uniformly, length
      lognormal `prefix_tokens`, drawn once each, and a task, lognormal `task_tokens`. Its turns: geometric with mean
      `lead_turns_mean_count`.
    * Sub-agents: after a turn of the lead, with probability `fan_out_ratio`, geometric `subagents_mean_count` of them.
      Each starts from one of `subagent_prefix_count` shared prefixes of the same lengths, not from what the lead has,
      and an instruction (lognormal `task_tokens`), and runs for geometric `subagent_turns_mean_count` turns. None sees
      another's work, as if they ran at once, but they run one after another. The last outputs of all are added to the
      lead's next prompt; the rest of their sequences is left behind.
    * A turn's prompt is all before it and the result of the tool called last, lognormal `tool_result_tokens`; its
      output lognormal `output_tokens`. The tool, of a lead or a sub-agent, runs for lognormal `think_s`.
    * Compaction: an agent that holds more than `compact_tokens` before another turn first asks, think_s after, for a
      summary: a request over all it has, whose output is of lognormal `summary_tokens`. It goes on from its shared
      prefix and the summary. A prompt can exceed `compact_tokens` by an output, the reports, and a tool's result.
    * Session starts: Poisson with rate `sessions_per_s`. All draws are independent.
    """

    component: ClassVar[str] = "agentic"

    lead_prefix_count: Count
    subagent_prefix_count: Count
    prefix_tokens: LogNormal
    task_tokens: LogNormal
    lead_turns_mean_count: Mean
    fan_out_ratio: Ratio
    subagents_mean_count: Mean
    subagent_turns_mean_count: Mean
    tool_result_tokens: LogNormal
    output_tokens: LogNormal
    think_s: LogNormal
    compact_tokens: Count
    summary_tokens: LogNormal

    @model_validator(mode="after")
    def _compaction_helps(self) -> AgenticTrace:
        longest = self.prefix_tokens.maximum + self.summary_tokens.maximum
        if self.compact_tokens <= longest:
            raise ValueError(
                f"trace.compact_tokens: given {self.compact_tokens}, expected more than the longest prefix and summary "
                f"({longest:g}), which is what a compaction leaves"
            )
        return self

    def prefixes(self, lines: Lines, seed: int) -> list[Prefix]:
        """Return the prefixes of leads, then those of sub-agents."""
        kinds = {"leads": self.lead_prefix_count, "subagents": self.subagent_prefix_count}
        return [
            prefix
            for kind, many in kinds.items()
            for prefix in shared_prefixes(lines, seed, f"agentic.{kind}", many, self.prefix_tokens)
        ]

    def session(self, lines: Lines, prefixes: Sequence[Prefix], draws: Draws) -> Iterator[Turn]:
        """Yield the turns of one lead and of its sub-agents, in the order they happen."""
        kind = prefixes[int(draws.at(0, PREFIX) * self.lead_prefix_count)]
        lead, turn = _Context(lines, kind, kind.tokens + self.task_tokens.whole(draws.at(0, FIRST))), 1
        for own_turn in range(geometric(self.lead_turns_mean_count, draws.at(0, TURNS))):
            for step in self._steps(lead, own_turn > 0, draws, turn):
                yield step
                turn += 1
            asking = turn - 1
            if draws.at(asking, FAN_OUT) < self.fan_out_ratio:
                for _ in range(geometric(self.subagents_mean_count, draws.at(asking, SUBAGENTS))):
                    for step in self._subagent(lines, prefixes, draws, turn):
                        yield step
                        turn += 1
                    lead.tokens += step.output_tokens

    def _subagent(self, lines: Lines, prefixes: Sequence[Prefix], draws: Draws, first_turn: int) -> Iterator[Turn]:
        number = int(draws.at(first_turn, SUBAGENT_KIND) * self.subagent_prefix_count)
        kind = prefixes[self.lead_prefix_count + number]
        instruction_tokens = self.task_tokens.whole(draws.at(first_turn, INSTRUCTION))
        own, turn = _Context(lines, kind, kind.tokens + instruction_tokens), first_turn
        for own_turn in range(geometric(self.subagent_turns_mean_count, draws.at(first_turn, SUBAGENT_TURNS))):
            for step in self._steps(own, own_turn > 0, draws, turn):
                yield step
                turn += 1

    def _steps(self, context: _Context, goes_on: bool, draws: Draws, turn: int) -> Iterator[Turn]:
        """Yield an agent's next turn, numbered `turn`, and before it a request for a summary where one is due."""
        if goes_on:
            if context.tokens > self.compact_tokens:
                summary_tokens = self.summary_tokens.whole(draws.at(turn, OUTPUT))
                yield context.asked(summary_tokens, self.think_s.value(draws.at(turn, THINK)))
                context.compact(summary_tokens)
                turn += 1
            context.tokens += self.tool_result_tokens.whole(draws.at(turn, NEW))
        output_tokens = self.output_tokens.whole(draws.at(turn, OUTPUT))
        yield context.asked(output_tokens, self.think_s.value(draws.at(turn, THINK)))
