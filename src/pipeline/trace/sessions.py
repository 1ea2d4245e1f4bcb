"""What the generators share: sessions whose prompts grow along token sequences that branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from pipeline.spec import Count, Positive
from pipeline.trace.base import TraceSource
from pipeline.trace.draws import Draws, LogNormal, exponential, uniforms
from pipeline.trace.ledger import READ, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.request_trace import Ints, RequestTrace
from pipeline.trace.selection import take

_LINE_SHIFT = 32
GAP, PREFIX, TURNS, FIRST = range(4)
"""Slots of a session's own draws (its turn 0): gap to the session before, shared prefix, turns, first prompt."""
NEW, OUTPUT, THINK = range(3)
"""Slots of each turn's draws (turns 1, 2, ...): tokens new in the prompt, output tokens, think time."""


class Prefix(NamedTuple):
    """Tokens that sessions share: the first `tokens` of line `line`."""

    line: int
    tokens: int


class Turn(NamedTuple):
    """A request whose prompt is the first `input_tokens` of a line; its output goes on along the same line.

    class_id: its position in the source's `classes`.
    """

    line: int
    input_tokens: int
    output_tokens: int
    think_s: float
    class_id: int = 0


class Lines:
    """Token sequences: each begins as a copy of the first `fork_tokens` of its parent and goes on alone."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._fork_tokens: list[int] = []

    def add(self, prefix: Prefix | None = None) -> int:
        """Start a line behind `prefix`, or an empty one, and return its number."""
        self._parent.append(prefix.line if prefix else 0)
        self._fork_tokens.append(prefix.tokens if prefix else 0)
        return len(self._parent) - 1

    def chains(self, line: Ints, block_count: Ints, block_tokens: int) -> tuple[Ints, Ints]:
        """Return offsets (n + 1,) and ids (m,) of the first `block_count` (n,) blocks of each request's line (n,).

        A block that lies wholly inside the copied part is the parent's; its id is (line, position), so equal ids have
        equal prefixes.
        """
        offset = np.concatenate([[0], np.cumsum(block_count)])
        position = np.arange(offset[-1]) - np.repeat(offset[:-1], block_count)
        owner = np.repeat(line, block_count)
        parent = np.array(self._parent, np.int64)
        copied = np.array(self._fork_tokens, np.int64) // block_tokens
        while (above := position < copied[owner]).any():
            owner = np.where(above, parent[owner], owner)
        return offset, (owner << _LINE_SHIFT) | position


class SessionSource(TraceSource):
    """Seeded sessions. A subclass writes `prefixes` (what sessions share) and `session` (the turns of one).

    Sessions start as a Poisson process of `sessions_per_s` (a nominal rate, which load scaling replaces). Inside a
    session the loop is closed: turn t + 1 comes think_s after the answer to turn t. Its arrival_s is what it would be
    if answers took no time; it orders requests where no simulation does. Outputs stay in the sequence, so the blocks
    they complete are listed and the next turn can find them.
    Every draw is keyed by (seed, component, session, turn): more sessions, or other options of one turn, leave the
    draws of all others as they were.
    """

    component: ClassVar[str]

    session_count: Count = Field(le=10**6)
    sessions_per_s: Positive

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes of requests; one, named as the trace, unless a subclass has others."""
        return (self.name,)

    def prefixes(self, lines: Lines, seed: int) -> list[Prefix]:
        """Return the prefixes that sessions share."""
        raise NotImplementedError

    def session(self, lines: Lines, prefixes: Sequence[Prefix], draws: Draws) -> Iterator[Turn]:
        """Yield the turns of one session in order; the first one's think time is not used."""
        raise NotImplementedError

    def sessions(self, lines: Lines, seed: int) -> Iterator[tuple[float, list[Turn]]]:
        """Yield the start in seconds and the turns of each session, in the order of their numbers."""
        prefixes = self.prefixes(lines, seed)
        start_s = 0.0
        for session in range(self.session_count):
            draws = Draws(seed, self.component, session)
            start_s += exponential(self.sessions_per_s, draws.at(0, GAP))
            yield start_s, list(self.session(lines, prefixes, draws))

    def assumed(self) -> str:
        """Everything is."""
        return (
            f"synthetic: every value is assumed, as is that {self.sessions_per_s:g} sessions start a second; rates, "
            "working sets, hits by cache size and so the verdict depend on it"
        )

    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Generate all sessions, in order of arrival; nothing is read."""
        del read
        lines = Lines()
        turns: list[Turn] = []
        arrivals: list[float] = []
        lengths: list[int] = []
        for start_s, session in self.sessions(lines, seed):
            arrivals += accumulate((turn.think_s for turn in session[1:]), initial=start_s)
            turns += session
            lengths.append(len(session))
        trace = self._trace(lines, turns, np.array(arrivals), np.array(lengths))
        ledger.add_all(READ, trace.request_id)
        return take(trace, np.argsort(trace.arrival_s, kind="stable"))

    def _trace(
        self, lines: Lines, turns: list[Turn], arrival_s: np.ndarray[tuple[int], np.dtype[np.float64]], lengths: Ints
    ) -> RequestTrace:
        line, inputs, outputs = (np.array(column, np.int64) for column in list(zip(*turns, strict=True))[:3])
        offset, ids = lines.chains(line, (inputs + outputs) // self.block_tokens, self.block_tokens)
        return RequestTrace(
            name=self.name,
            block_tokens=self.block_tokens,
            classes=self.classes,
            request_id=np.arange(line.size),
            session_id=np.repeat(np.arange(lengths.size), lengths),
            class_id=np.array([turn.class_id for turn in turns]),
            arrival_s=arrival_s,
            think_s=np.array([turn.think_s for turn in turns]),
            input_tokens=inputs,
            output_tokens=outputs,
            block_offset=offset,
            block_ids=ids,
            has_prefixes=True,
        )


def shared_prefixes(
    lines: Lines, seed: int, component: str, count: int, length_tokens: LogNormal, behind: Prefix | None = None
) -> list[Prefix]:
    """Make `count` prefixes of random length, each a line of its own behind `behind`; draws keyed by their number."""
    before = behind.tokens if behind else 0
    draws = uniforms(seed, component, count)
    return [Prefix(lines.add(behind), before + length_tokens.whole(draw)) for draw in draws.tolist()]


def conversation(
    start: Prefix, turn_count: int, new: LogNormal, output: LogNormal, think: LogNormal, draws: Draws, first_turn: int
) -> Iterator[Turn]:
    """Yield `turn_count` turns: each prompt is the one before, its answer, and new tokens.

    start: the line, and the tokens of the first prompt. first_turn: number of the first turn in the session.
    """
    length = start.tokens
    for turn in range(first_turn, first_turn + turn_count):
        length += new.whole(draws.at(turn, NEW)) if turn > first_turn else 0
        step = Turn(start.line, length, output.whole(draws.at(turn, OUTPUT)), think.value(draws.at(turn, THINK)))
        yield step
        length += step.output_tokens
