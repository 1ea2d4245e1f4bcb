"""Generator of chat with bursts of one-off long prompts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import ClassVar

from typing_extensions import override

from pipeline.spec import Positive
from pipeline.trace.chat import ChatTrace
from pipeline.trace.draws import Draws, LogNormal, Mean, exponential, geometric
from pipeline.trace.sessions import GAP, NEW, OUTPUT, TURNS, Lines, Turn

CHAT, SCAN = range(2)
"""Classes of requests."""


class ScanBurstTrace(ChatTrace):
    """Chat, as of ChatTrace, and bursts of scans: a job that reads many long texts once (a crawl, a backfill).

    No block of a scan is ever looked up again, so a cache that keeps what was used last (LRU) gives up prompts that
    were used thousands of times for it. The chats are those of ChatTrace with the same options and seed.

    * Bursts start as a Poisson process of `bursts_per_s`, a nominal rate as `sessions_per_s` is, from 0 to the start
      of the last chat.
    * Scans of a burst: geometric with mean `burst_mean_count`, at least 1. A burst is one session: a scan comes
      `burst_gap_s` (fixed) after the answer to the one before, so a slow service is not flooded.
    * A scan: a prompt of lognormal `scan_tokens` that shares nothing, an output of lognormal `scan_output_tokens`.
    * Classes: chat and scan. Sessions are numbered chats first. All draws are independent.
    """

    bursts: ClassVar[str] = "scan_burst.bursts"

    bursts_per_s: Positive
    burst_mean_count: Mean
    burst_gap_s: Positive
    scan_tokens: LogNormal
    scan_output_tokens: LogNormal

    @property
    @override
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of CHAT and SCAN."""
        return ("chat", "scan")

    @override
    def sessions(self, lines: Lines, seed: int) -> Iterator[tuple[float, list[Turn]]]:
        """Yield the chats, then the bursts."""
        last_s = 0.0
        for last_s, turns in super().sessions(lines, seed):
            yield last_s, turns
        start_s = 0.0
        for burst in count():
            draws = Draws(seed, self.bursts, burst)
            start_s += exponential(self.bursts_per_s, draws.at(0, GAP))
            if start_s > last_s:
                return
            yield start_s, [self._scan(lines, draws, i) for i in range(1, self._scans(draws) + 1)]

    def _scans(self, draws: Draws) -> int:
        return geometric(self.burst_mean_count, draws.at(0, TURNS))

    def _scan(self, lines: Lines, draws: Draws, turn: int) -> Turn:
        prompt_tokens = self.scan_tokens.whole(draws.at(turn, NEW))
        output_tokens = self.scan_output_tokens.whole(draws.at(turn, OUTPUT))
        return Turn(lines.add(), prompt_tokens, output_tokens, self.burst_gap_s, SCAN)
