"""Step times looked up in a `StepTable`, compiled.

Compiled code gets the table as one record (see records.py): of a tuple of its nineteen arrays each call would
count the users of every one, ten times the work of the look-up.
"""

from __future__ import annotations

import numpy as np
from numba import njit, typeof
from numpy.typing import NDArray

from pipeline.predictor.joint_attention import JointAttention, joint_attention_s
from pipeline.predictor.step_table import StepTable, constant_step_table, to_arrays
from pipeline.records import make_record, view_float_table, view_floats

Floats = NDArray[np.float64]
TableRecord = np.record

TOKENS, SEQUENCES, NEW, PROMPT, DECODES, CONTEXT = range(6)
"""Places in `profiled`."""


def pack(table: StepTable) -> TableRecord:
    """Copy a step table into one record; `least_decode_s`: no step in which someone decodes takes less."""
    fields = to_arrays(table)
    arrays = {name: np.asarray(value, np.float64) for name, value in fields.items() if value.ndim}
    numbers = {name: float(value) for name, value in fields.items() if not value.ndim}
    numbers["least_decode_s"] = _least_s(table.dense_s, table.dense_slope_s)
    numbers["least_decode_s"] += _least_s(table.logits_s, table.logits_slope_s)
    record = make_record([(name, np.float64) for name in numbers], arrays)
    for name, value in numbers.items():
        record[name] = value
    return record


def _least_s(by_count_s: Floats, slope_s: float) -> float:
    """The least that a count of one or more takes."""
    return float(by_count_s[min(1, by_count_s.size - 1) :].min()) if slope_s >= 0 else 0.0


TABLE_TYPE = typeof(pack(constant_step_table(1.0)))


def step_time_s(
    table: StepTable,
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
    counts = (prefill_tokens, float(prefill_pairs), decode_requests, float(decode_context_tokens))
    lengths = (sequences, decode_square_tokens, decode_most_tokens)
    time_s, outside_s = look_up_step(pack(table), *counts, *lengths)
    return float(time_s), float(outside_s)


@njit(cache=True)
def look_up_step(
    t: TableRecord,
    prefill_tokens: int,
    prefill_pairs: float,
    decode_requests: int,
    decode_context_tokens: float,
    sequences: int,
    decode_square_tokens: int,
    decode_most_tokens: int,
) -> tuple[float, float]:
    """As step_time_s, of a packed table."""
    time_s, outside_s = linear_part_s(t, prefill_tokens + decode_requests, sequences)
    if prefill_tokens > 0:
        time_s += t.prefill_step_s
    if is_joint(t):
        part_s, outside = _joint_s(
            t,
            prefill_tokens,
            prefill_pairs,
            decode_requests,
            decode_context_tokens,
            decode_square_tokens,
            decode_most_tokens,
        )
        return time_s + part_s, outside_s + part_s if outside else outside_s
    if prefill_tokens > 0:
        part_s, outside = prefill_step_attention_s(t, float(prefill_tokens), prefill_pairs)
        time_s += part_s
        if outside:
            outside_s += part_s
    if decode_requests > 0:
        count = cell(decode_counts(t), float(decode_requests))
        mean = decode_context_tokens / decode_requests
        context = cell(decode_contexts(t), mean)
        part_s, outside = decode_part_s(t, count, context, float(decode_requests), mean)
        time_s += part_s
        if outside:
            outside_s += part_s
    return time_s, outside_s


@njit(cache=True)
def is_joint(t: TableRecord) -> bool:
    """Whether attention of prefill and decode was measured together."""
    return t.joint_time_s_rows > 0


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
def linear_part_s(t: TableRecord, tokens: int, sequences: int) -> tuple[float, float]:
    """All but attention of a step with so many tokens and sequences, and its part outside the profiled range."""
    dense_s = view_floats(t, t.dense_s_at, t.dense_s_rows)
    logits_s = view_floats(t, t.logits_s_at, t.logits_s_rows)
    profiled = _profiled(t)
    time_s = _per_count(dense_s, t.dense_slope_s, tokens) + _per_count(logits_s, t.logits_slope_s, sequences)
    outside = tokens > profiled[TOKENS] or sequences > profiled[SEQUENCES]
    return time_s, time_s if outside else 0.0


@njit(cache=True)
def _per_count(table_s: Floats, slope_s: float, count: int) -> float:
    last = table_s.size - 1
    if count <= last:
        return float(table_s[count])
    return float(table_s[last]) + slope_s * (count - last)


@njit(cache=True)
def _profiled(t: TableRecord) -> Floats:
    return view_floats(t, t.profiled_at, t.profiled_rows)


@njit(cache=True)
def decode_counts(t: TableRecord) -> Floats:
    """View the thresholds of decoding requests."""
    return view_floats(t, t.decode_count_edges_at, t.decode_count_edges_rows)


@njit(cache=True)
def decode_contexts(t: TableRecord) -> Floats:
    """View the thresholds of their mean KV tokens."""
    return view_floats(t, t.decode_context_edges_at, t.decode_context_edges_rows)


@njit(cache=True)
def decode_part_s(t: TableRecord, count: int, context: int, requests: float, mean_tokens: float) -> tuple[float, bool]:
    """Attention of `requests` decoding one token each, all layers, in seconds; whether outside the profiled range.

    count, context: the cells that hold the requests and their mean KV tokens.
    """
    c = view_floats(t, t.decode_coefficients_at, t.decode_coefficients_rows)
    ratio = view_float_table(t, t.decode_ratio_at, t.decode_ratio_rows, t.decode_ratio_columns)
    profiled = _profiled(t)
    base = c[0] + c[1] * requests + c[2] * requests * mean_tokens
    return base * ratio[count, context], requests > profiled[DECODES] or mean_tokens > profiled[CONTEXT]


@njit(cache=True)
def prefill_attention_s(t: TableRecord, new_tokens: float, cached_tokens: float) -> float:
    """Attention of one prefill chunk, all layers, in seconds."""
    c = view_floats(t, t.prefill_coefficients_at, t.prefill_coefficients_rows)
    ratio = view_float_table(t, t.prefill_ratio_at, t.prefill_ratio_rows, t.prefill_ratio_columns)
    new = cell(view_floats(t, t.prefill_new_edges_at, t.prefill_new_edges_rows), new_tokens)
    cached = cell(view_floats(t, t.prefill_cached_edges_at, t.prefill_cached_edges_rows), cached_tokens)
    pairs = new_tokens * (cached_tokens + new_tokens / 2)
    base = c[0] + c[1] * new_tokens + c[2] * pairs + c[3] * (new_tokens + cached_tokens)
    return base * ratio[new, cached]


@njit(cache=True)
def prefill_step_attention_s(t: TableRecord, tokens: float, pairs: float) -> tuple[float, bool]:
    """Attention of all prefill chunks of a step: `tokens` new tokens in all, `pairs` query-key pairs, in seconds.

    One chunk of the same tokens and pairs stands for them. Where several chunks have fewer pairs than one chunk without
    cached tokens would, each missing pair saves what a pair costs in the baseline; at the least it takes as long as one
    chunk of their mean length. Also returned: whether it lies outside the profiled range.
    """
    profiled = _profiled(t)
    cached = pairs / tokens - tokens / 2
    outside = tokens > profiled[NEW] or tokens + max(cached, 0.0) > profiled[PROMPT]
    if cached >= 0.0:
        return prefill_attention_s(t, tokens, cached), outside
    c = view_floats(t, t.prefill_coefficients_at, t.prefill_coefficients_rows)
    saved_s = c[2] * (tokens * tokens / 2 - pairs)
    least_s = prefill_attention_s(t, 2 * pairs / tokens, 0.0)
    return max(prefill_attention_s(t, tokens, 0.0) - saved_s, least_s), outside


@njit(cache=True)
def _joint_s(
    t: TableRecord, tokens: int, pairs: float, requests: int, context: float, squares: int, most: int
) -> tuple[float, bool]:
    """Attention as measured of prefill and decode together; a decoding request's own token is not cached yet."""
    mean, spread = 0.0, 0.0
    if requests > 0:
        mean = context / requests - 1.0
        spread = np.sqrt(max(requests * float(squares) - context * context, 0.0)) / requests
    joint = JointAttention(
        view_floats(t, t.joint_new_at, t.joint_new_rows),
        view_floats(t, t.joint_cached_at, t.joint_cached_rows),
        view_floats(t, t.joint_decodes_at, t.joint_decodes_rows),
        view_floats(t, t.joint_context_at, t.joint_context_rows),
        view_floats(t, t.joint_time_s_at, t.joint_time_s_rows),
        view_float_table(t, t.joint_trees_at, t.joint_trees_rows, t.joint_trees_columns),
        view_floats(t, t.joint_roots_at, t.joint_roots_rows),
        t.joint_saved_share,
    )
    return joint_attention_s(joint, float(tokens), pairs, float(requests), mean, spread, most - 1.0)
