"""`RequestTrace`: what every reader and generator returns and every simulation consumes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RequestTrace:
    """n requests in order of arrival, with the block chain of each.

    request_id, session_id, class_id: (n,); classes: names by class_id.
    arrival_s: (n,) non-decreasing, from 0. In a closed-loop session only the first turn's arrival counts; a later
        turn arrives think_s after the previous turn of its session completed. think_s: (n,), NaN where open loop.
    input_tokens, output_tokens: (n,), at least 1.
    block_tokens: tokens per block. block_offset: (n + 1,); block_ids[block_offset[i]:block_offset[i + 1]] are the
        *full* blocks of request i in chain order, prompt first and, where the source knows them, those that its
        output completes; numbered 0..block_count-1. Equal number = equal content and equal prefix. A prompt's share
        is the first min(its length, input_tokens // block_tokens). A last, partial block is never listed.
    has_prefixes: false where the source carries no prefix information (then no request lists a block).
    """

    name: str
    block_tokens: int
    classes: tuple[str, ...]
    request_id: Ints
    session_id: Ints
    class_id: Ints
    arrival_s: Floats
    think_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    block_offset: Ints
    block_ids: Ints
    has_prefixes: bool

    @property
    def request_count(self) -> int:
        """Requests in the trace."""
        return int(self.request_id.size)

    def block_places(self) -> tuple[Ints, Ints]:
        """Request of each listed block, and its place in the chain of that, both (m,)."""
        lengths = np.diff(self.block_offset)
        request = np.repeat(np.arange(self.request_count), lengths)
        return request, np.arange(self.block_ids.size) - np.repeat(self.block_offset[:-1], lengths)

    @property
    def block_count(self) -> int:
        """Distinct blocks."""
        return int(self.block_ids.max()) + 1 if self.block_ids.size else 0
