"""The calibrated cost model: backlog, service and queue, weighted by how tight the request's SLO is."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.routing.base import Floats, Ints, PoolView, RequestView, Router, RouterState
from pipeline.routing.ties import least
from pipeline.spec import NonNegative, Positive, Sourced, Spec


@njit(cache=True)
def _costs(
    prompt: tuple[float, float, float],
    output: tuple[float, float, float],
    weights: tuple[float, float, float, float],
    admitted_tokens: float,
    queue_count: Ints,
    kv_used_tokens: Ints,
    kv_capacity_tokens: Ints,
    outstanding_input_tokens: Ints,
    outstanding_output_tokens: Floats,
    matched_tokens: Ints,
    prefill_s_per_token: Floats,
    decode_s_per_token: Floats,
) -> Floats:
    input_tokens, uses_match, prompt_sigma = prompt
    output_tokens, _, output_sigma = output
    w_b, w_s, w_q, rho = weights
    costs = np.empty(queue_count.size)
    for d in range(queue_count.size):
        pressure = 1.0 + rho * (kv_used_tokens[d] + admitted_tokens) / kv_capacity_tokens[d]
        prompt_tokens = w_b * outstanding_input_tokens[d] + w_s * (input_tokens - uses_match * matched_tokens[d]) * pressure
        decoded_tokens = w_b * outstanding_output_tokens[d] + w_s * output_tokens * pressure
        costs[d] = (
            prompt_sigma * prompt_tokens * prefill_s_per_token[d]
            + output_sigma * decoded_tokens * decode_s_per_token[d]
            + w_q * queue_count[d]
        )
    return costs
