"""The compiled look-up of step times that simulations use.

A forest over measured samples is piecewise constant, so its table over its own thresholds is exact. What is
tabulated is the *ratio* of the forest's time to a physical baseline: inside the profiled range the table equals the
forest, outside it the baseline goes on physically with the ratio of the nearest cell, and such time is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.predictor.joint_attention import NO_JOINT, JointAttention, joint_attention_s

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


@njit(cache=True)
def cell(edges: Floats, value: float) -> int:
    """Index of the cell between `edges` that holds `value`; a value on an edge belongs below it, as in a tree."""
    low, high = 0, edges.size
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _per_count(table_s: Floats, slope_s: float, count: int) -> float:
    last = table_s.size - 1
    if count <= last:
        return float(table_s[count])
    return float(table_s[last]) + slope_s * (count - last)


@njit(cache=True)
def prefill_attention_s(t: StepTable, new_tokens: float, cached_tokens: float) -> float:
    """Attention of one prefill chunk, all layers, in seconds."""
    c = t.prefill_coefficients
    pairs = new_tokens * (cached_tokens + new_tokens / 2)
    base = c[0] + c[1] * new_tokens + c[2] * pairs + c[3] * (new_tokens + cached_tokens)
    return base * t.prefill_ratio[cell(t.prefill_new_edges, new_tokens), cell(t.prefill_cached_edges, cached_tokens)]


@njit(cache=True)
def prefill_step_attention_s(t: StepTable, tokens: float, pairs: float) -> float:
    """Attention of all prefill chunks of a step: `tokens` new tokens in all, `pairs` query-key pairs, in seconds.

    One chunk of the same tokens and pairs stands for them. Where several chunks have fewer pairs than one chunk without
    cached tokens would, each missing pair saves what a pair costs in the baseline; at the least it takes as long as one
    chunk of their mean length.
    """
    cached = pairs / tokens - tokens / 2
    if cached >= 0.0:
        return prefill_attention_s(t, tokens, cached)
    saved_s = t.prefill_coefficients[2] * (tokens * tokens / 2 - pairs)
    return max(prefill_attention_s(t, tokens, 0.0) - saved_s, prefill_attention_s(t, 2 * pairs / tokens, 0.0))


@njit(cache=True)
def decode_attention_s(t: StepTable, requests: float, context_mean_tokens: float) -> float:
    """Attention of `requests` decoding one token each, all layers, in seconds."""
    c = t.decode_coefficients
    base = c[0] + c[1] * requests + c[2] * requests * context_mean_tokens
    i, j = cell(t.decode_count_edges, requests), cell(t.decode_context_edges, context_mean_tokens)
    return base * t.decode_ratio[i, j]


@njit(cache=True)
def step_time_s(
    t: StepTable,
    prefill_tokens: int,
    prefill_pairs: float,
    decode_requests: int,
    decode_context_tokens: float,
    sequences: int,
    decode_square_tokens: int = 0,
    decode_most_tokens: int = 0,
) -> tuple[float, float]:
    """Time of one engine step, and the part of it that lies outside the profiled range, both in seconds.

    prefill_pairs: sum over prefill chunks of q (k + q/2), their query-key pairs. decode_context_tokens: KV length of
    the decoding requests, summed; decode_square_tokens, decode_most_tokens: its squares summed, and its maximum (needed
    where unequal lengths were measured). sequences: requests in the step that yield a token.
    """
    tokens = prefill_tokens + decode_requests
    time_s = _per_count(t.dense_s, t.dense_slope_s, tokens) + _per_count(t.logits_s, t.logits_slope_s, sequences)
    outside_s = time_s if tokens > t.profiled[0] or sequences > t.profiled[1] else 0.0
    if prefill_tokens > 0:
        time_s += t.prefill_step_s
    if t.joint.time_s.size > 0:
        part_s, outside = _joint_s(
            t.joint,
            prefill_tokens,
            prefill_pairs,
            decode_requests,
            decode_context_tokens,
            decode_square_tokens,
            decode_most_tokens,
        )
        return time_s + part_s, outside_s + part_s if outside else outside_s
    if prefill_tokens > 0:
        cached = max(prefill_pairs / prefill_tokens - prefill_tokens / 2, 0.0)
        part_s = prefill_step_attention_s(t, float(prefill_tokens), prefill_pairs)
        time_s += part_s
        if prefill_tokens > t.profiled[2] or prefill_tokens + cached > t.profiled[3]:
            outside_s += part_s
    if decode_requests > 0:
        context = decode_context_tokens / decode_requests
        part_s = decode_attention_s(t, float(decode_requests), context)
        time_s += part_s
        if decode_requests > t.profiled[4] or context > t.profiled[5]:
            outside_s += part_s
    return time_s, outside_s


@njit(cache=True)
def _joint_s(
    joint: JointAttention, tokens: int, pairs: float, requests: int, context: float, squares: int, most: int
) -> tuple[float, bool]:
    """Attention as measured of prefill and decode together; a decoding request's own token is not cached yet."""
    mean, spread = 0.0, 0.0
    if requests > 0:
        mean = context / requests - 1.0
        spread = np.sqrt(max(requests * float(squares) - context * context, 0.0)) / requests
    return joint_attention_s(joint, float(tokens), pairs, float(requests), mean, spread, most - 1.0)


def to_arrays(t: StepTable) -> dict[str, NDArray[Any]]:
    """Give the fields of a table as named arrays, to be written."""
    joint = {f"joint_{name}": value for name, value in t.joint._asdict().items()}
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
