"""Generator of agents that call tools and branch into sub-tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

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
    conversation,
    shared_prefixes,
)

BRANCHES, BRANCH_TURNS, BRANCH_TASK = range(3, 6)
"""Further slots of a turn's draws: whether it starts a sub-task, the sub-task's turns, its instruction."""


class AgentTrace(SessionSource):
    """Agents in a tool loop: many turns, short pauses, a long shared prefix of instructions and tools.

    * Shared prefix: one of `tool_prefix_count` kinds of agent, uniformly; length lognormal `tool_prefix_tokens`, drawn
      once each. Then the task, lognormal `task_tokens`.
    * Turns of the agent: geometric with mean `turns_mean_count`. A turn's prompt is everything before it and the
      result of the tool called last, lognormal `tool_result_tokens`; its output a call, lognormal `output_tokens`.
      The tool runs for lognormal `think_s`.
    * After a turn, with probability `subtask_ratio`, a sub-task branches off: it starts from all the parent has so far
      and an instruction (lognormal `task_tokens`), runs alone for geometric `subtask_turns_mean_count` turns of the
      same kind, and its last output is added to the parent's next prompt; the rest of its sequence is left behind.
      One thing happens at a time.
    * Session starts: Poisson with rate `sessions_per_s`. All draws are independent.
    """

    component: ClassVar[str] = "agent"

    tool_prefix_count: Count
    tool_prefix_tokens: LogNormal
    task_tokens: LogNormal
    turns_mean_count: Mean
    tool_result_tokens: LogNormal
    output_tokens: LogNormal
    think_s: LogNormal
    subtask_ratio: Ratio
    subtask_turns_mean_count: Mean

    def prefixes(self, lines: Lines, seed: int) -> list[Prefix]:
        """Return the prefixes of the kinds of agent."""
        return shared_prefixes(lines, seed, "agent.prefixes", self.tool_prefix_count, self.tool_prefix_tokens)

    def session(self, lines: Lines, prefixes: Sequence[Prefix], draws: Draws) -> Iterator[Turn]:
        """Yield the turns of one agent and of its sub-tasks, in the order they happen."""
        kind = prefixes[int(draws.at(0, PREFIX) * len(prefixes))]
        line, length, turn = lines.add(kind), kind.tokens + self.task_tokens.whole(draws.at(0, FIRST)), 1
        for own_turn in range(geometric(self.turns_mean_count, draws.at(0, TURNS))):
            length += self.tool_result_tokens.whole(draws.at(turn, NEW)) if own_turn else 0
            output = self.output_tokens.whole(draws.at(turn, OUTPUT))
            yield Turn(line, length, output, self.think_s.value(draws.at(turn, THINK)))
            length += output
            branching, turn = turn, turn + 1
            if draws.at(branching, BRANCHES) < self.subtask_ratio:
                report_tokens = 0
                for step in self._subtask(lines, Prefix(line, length), draws, branching):
                    yield step
                    report_tokens, turn = step.output_tokens, turn + 1
                length += report_tokens

    def _subtask(self, lines: Lines, parent: Prefix, draws: Draws, branching: int) -> Iterator[Turn]:
        instruction_tokens = self.task_tokens.whole(draws.at(branching, BRANCH_TASK))
        start = Prefix(lines.add(parent), parent.tokens + instruction_tokens)
        count = geometric(self.subtask_turns_mean_count, draws.at(branching, BRANCH_TURNS))
        new, output, think = self.tool_result_tokens, self.output_tokens, self.think_s
        yield from conversation(start, count, new, output, think, draws, branching + 1)
