"""Rows of a scenario: the stays of its requests at engines, and which request follows which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.placement.state import HBM
from pipeline.serving.scenario import Scenario
from pipeline.serving.state import NONE, Floats, Ints, Rows, make_rows
from pipeline.spec import InputError
from pipeline.trace.request_trace import RequestTrace


def successors(trace: RequestTrace) -> Ints:
    """Position (n,) of the request that arrives once this one has ended, in a closed loop; -1 without one."""
    order = np.argsort(trace.session_id, kind="stable")
    follows = (trace.session_id[order][1:] == trace.session_id[order][:-1]) & ~np.isnan(trace.think_s[order][1:])
    result = np.full(trace.request_count, NONE, np.int64)
    result[order[:-1][follows]] = order[1:][follows]
    return result


def make_stays(scenario: Scenario, follower: Ints) -> Rows:
    """Make the rows: one per request, or where prefill and decode are split, n for prefill and then n for decode.

    With a prefetcher n more that stand for what is fetched.
    """
    trace, count, stays = scenario.trace, scenario.trace.request_count, scenario.stay_count
    rows = make_rows((stays + scenario.prefetch.fetches) * count)
    chains = trace.block_offset[1:] - trace.block_offset[:-1]
    for k in range(stays + scenario.prefetch.fetches):
        stay = rows[k * count : (k + 1) * count]
        if k == stays:
            stay.is_prefetch = True
            stay.chain_start, stay.chain_blocks = trace.block_offset[:-1], chains
        else:
            stay.input_tokens = trace.input_tokens
            stay.output_tokens = trace.output_tokens
            stay.chain_start = trace.block_offset[:-1]
            stay.chain_blocks = chains if scenario.reuses else 0
            stay.awaited = (follower != NONE) | scenario.prefetch.watches_ends
            stay.rank = _ranks(scenario)
    if scenario.is_split:
        goes_on = trace.output_tokens > 1
        prefill = rows[:count]
        prefill.output_tokens = 1
        prefill.keeps = goes_on
        prefill.awaited |= goes_on
        rows[count : 2 * count].remote_tokens = trace.input_tokens
    return rows


def _ranks(scenario: Scenario) -> Floats:
    """Rank of each request (n,): what its engine admits it by, the lowest first."""
    trace, engine = scenario.trace, scenario.engine
    if engine.scheduling == "shortest_first":
        return trace.input_tokens.astype(np.float64)
    unknown = sorted(set(engine.class_priority) - set(trace.classes))
    if unknown:
        raise InputError(
            f"engine.class_priority: given class {unknown[0]!r}, which trace {trace.name} does not have; its classes: "
            f"{', '.join(trace.classes)}"
        )
    by_class = [engine.class_priority.get(name, 0) for name in trace.classes]
    return np.array(by_class, np.float64)[trace.class_id]


def reject_reasons(scenario: Scenario) -> NDArray[np.str_]:
    """Say for each request (n,) why no instance can ever serve it; "" for those that can be served."""
    trace = scenario.trace
    capacity_tokens = scenario.stack_blocks[HBM] * trace.block_tokens
    total = trace.input_tokens + trace.output_tokens
    # The last token's KV is never stored.
    reasons = np.where(total - 1 > capacity_tokens, "exceeds_kv_capacity", "")
    return np.where(total > scenario.max_context_tokens, "exceeds_context", reasons)
