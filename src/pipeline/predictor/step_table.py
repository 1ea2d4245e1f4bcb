"""The table of step times that simulations use.

A forest over measured samples is piecewise constant, so its table over its own thresholds is exact. What is
tabulated is the *ratio* of the forest's time to a physical baseline: inside the profiled range the table equals the
forest, outside it the baseline goes on physically with the ratio of the nearest cell, and such time is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.joint_attention import NO_JOINT, JointAttention

Floats = NDArray[np.float64]


class StepTable(NamedTuple):
    """Step time of one instance: dense(T) + logits(n) + attention_prefill(q, k) + attention_decode(d, c).

    dense_s: (T_max + 1,) seconds by scheduled tokens, all layers, collectives included; dense_slope_s: seconds per
        token beyond T_max. logits_s, logits_slope_s: the same by sequences in the step.
    prefill_coefficients c: baseline seconds c0 + c1 q + c2 q (k + q/2) + c3 (q + k), q new and k cached tokens;
        prefill_new_edges (m,), prefill_cached_edges (p,): ascending thresholds; prefill_ratio (m + 1, p + 1).
    decode_coefficients c: baseline seconds c0 + c1 d + c2 d c, d decoding requests, c their mean KV tokens;
        decode_count_edges, decode_context_edges, decode_ratio: likewise.
    profiled: largest T, sequences, q, q + k, d, c among the samples.
    joint: attention of prefill and decode together, where that was measured; it then takes the place of both.
    prefill_step_s: calibrated seconds that a step with a prefill takes longer than its parts.
    """

    dense_s: Floats
    dense_slope_s: float
    logits_s: Floats
    logits_slope_s: float
    prefill_coefficients: Floats
    prefill_new_edges: Floats
    prefill_cached_edges: Floats
    prefill_ratio: Floats
    decode_coefficients: Floats
    decode_count_edges: Floats
    decode_context_edges: Floats
    decode_ratio: Floats
    profiled: Floats
    joint: JointAttention = NO_JOINT
    prefill_step_s: float = 0.0


def to_arrays(t: StepTable) -> dict[str, NDArray[Any]]:
    """Give the fields of a table as named arrays, to be written."""
    joint = {f"joint_{name}": np.asarray(value) for name, value in t.joint._asdict().items()}
    return {name: np.asarray(value) for name, value in t._asdict().items() if name != "joint"} | joint


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> StepTable:
    """Give back the table that `to_arrays` took apart."""
    fields: dict[str, Any] = {name: value if value.ndim else float(value) for name, value in arrays.items()}
    joint = JointAttention(**{name: fields.pop(f"joint_{name}") for name in JointAttention._fields})
    return StepTable(**fields, joint=joint)


def constant_step_table(step_s: float) -> StepTable:
    """A plant whose every step takes `step_s` seconds: for analytical anchors."""
    none = np.zeros(0)
    one = np.ones((1, 1))
    flat = np.array([step_s])
    everything = np.full(6, np.inf)
    zero = np.zeros(1)
    return StepTable(flat, 0.0, zero, 0.0, np.zeros(4), none, none, one, np.zeros(3), none, none, one, everything)


def linear_step_table(fixed_s: float, per_token_s: float, per_pair_s: float, per_decode_context_s: float) -> StepTable:
    """A plant with a physical baseline only: fixed + per scheduled token + per query-key pair + per decoded context."""
    none = np.zeros(0)
    one = np.ones((1, 1))
    prefill = np.array([0.0, 0.0, per_pair_s, 0.0])
    decode = np.array([0.0, 0.0, per_decode_context_s])
    everything = np.full(6, np.inf)
    fixed, zero = np.array([fixed_s]), np.zeros(1)
    return StepTable(fixed, per_token_s, zero, 0.0, prefill, none, none, one, decode, none, none, one, everything)
