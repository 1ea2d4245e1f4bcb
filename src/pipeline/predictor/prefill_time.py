"""Time that computing a prefix adds to a prefill: what a hit on it saves the GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.step_table import StepTable
from pipeline.predictor.step_time import look_up_step, pack

Floats = NDArray[np.float64]


def prefix_times(
    table: StepTable,
    prefix_tokens: NDArray[np.int64],
    rest_tokens: int,
    chunk_tokens: int,
    running: int,
    context_tokens: int,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Seconds that computing prefixes adds to a prefill, (n,), and whether any step lies outside the profiled range.

    prefix_tokens: (n,), ascending. rest_tokens: computed in either case. A step takes at most chunk_tokens of the
    prompt, beside `running` requests that decode over context_tokens each. At least 0 s: by a fitted table, a longer
    step may take less.
    """
    packed = pack(table)
    longest_tokens = context_tokens if running else 0

    def compute(new: int, cached: int) -> Floats:
        """Time of the steps that compute `new` tokens behind `cached` ones, and its part outside: (2,) seconds."""
        total = np.zeros(2)
        while new > 0:
            tokens = min(new, chunk_tokens)
            decodes = running, float(running * context_tokens)
            lengths = running + 1, running * context_tokens**2, longest_tokens
            total += look_up_step(packed, tokens, tokens * (cached + tokens / 2), *decodes, *lengths)
            new, cached = new - tokens, cached + tokens
        return total

    added = np.zeros((len(prefix_tokens), 2))
    done, chunks = 0, np.zeros(2)  # whole chunks from the start, which all longer prompts share
    for i, prefix in enumerate(map(int, prefix_tokens)):
        while prefix + rest_tokens - done > chunk_tokens:
            chunks += compute(chunk_tokens, done)
            done += chunk_tokens
        hit = compute(rest_tokens, prefix)
        missed = chunks + compute(prefix + rest_tokens - done, done)
        added[i] = missed[0] - hit[0], missed[1] + hit[1]
    return np.maximum(added[:, 0], 0.0), added[:, 1] > 0
