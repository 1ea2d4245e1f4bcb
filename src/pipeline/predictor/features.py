"""Samples of one operation as arrays, and their split into a part to train on and a part held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.spec import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FEWEST_SAMPLES = 5
OPERATIONS = ("dense", "logits", "collective", "attention_prefill", "attention_decode")


class OperationSamples(NamedTuple):
    """Samples of an operation: what it depends on (n, f), and seconds (n,).

    One feature for dense and collective (scheduled tokens) and logits (sequences); two for attention_prefill (new,
    cached tokens) and attention_decode (requests, mean context).
    """

    operation: str
    inputs: Floats
    time_s: Floats

    def part(self, chosen: Bools) -> OperationSamples:
        """The chosen rows."""
        return OperationSamples(self.operation, self.inputs[chosen], self.time_s[chosen])


def samples_of(step_samples: pa.Table, operation: str) -> OperationSamples | None:
    """Take the samples of `operation` out of the table; None where there are none.

    Raises InputError when there are too few of them to hold any out.
    """
    rows = step_samples.filter(pc.equal(step_samples["operation"], operation))
    if rows.num_rows == 0:
        return None
    if rows.num_rows < FEWEST_SAMPLES:
        raise InputError(f"step_samples: {rows.num_rows} rows of {operation}, expected at least {FEWEST_SAMPLES}")
    new, cached, requests, context = (
        rows[name].to_numpy().astype(np.float64)
        for name in ("prefill_tokens", "prefill_cached_tokens", "decode_requests", "decode_context_mean_tokens")
    )
    inputs = {
        "dense": (new + requests,),
        "collective": (new + requests,),
        "logits": (requests,),
        "attention_prefill": (new, cached),
        "attention_decode": (requests, context),
    }[operation]
    return OperationSamples(operation, np.stack(inputs, axis=1), rows["time_s"].to_numpy())


def held_out(count: int, ratio: float, seed: int, component: int) -> Bools:
    """Choose `ratio` of `count` > 1 rows, one at the least and not all, by a generator keyed with (seed, component)."""
    rng = np.random.Generator(np.random.Philox(key=[seed, component]))
    chosen = np.zeros(count, dtype=bool)
    chosen[rng.permutation(count)[: min(max(round(ratio * count), 1), count - 1)]] = True
    return chosen
