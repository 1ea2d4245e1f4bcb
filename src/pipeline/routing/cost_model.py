"""The calibrated cost model: backlog, service and queue, weighted by how tight the request's SLO is."""

from __future__ import annotations

import numpy as np
from numba import njit
from typing_extensions import override

from pipeline.routing.base import Floats, Ints, PoolView, RequestView, Router, RouterState
from pipeline.routing.ties import least
from pipeline.spec import NonNegative, Sourced


@njit(cache=True)
def _costs(
    weights: tuple[float, float, float, float],
    prompt: tuple[float, float],
    output: tuple[float, float],
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
    w_b, w_s, w_q, rho = weights
    prompt_tokens, prompt_sigma = prompt
    output_tokens, output_sigma = output
    costs = np.empty(queue_count.size)
    for d in range(queue_count.size):
        pressed = w_s * (1.0 + rho * (kv_used_tokens[d] + admitted_tokens) / kv_capacity_tokens[d])
        uncached = max(prompt_tokens - matched_tokens[d], 0.0)
        prefill_s = (w_b * outstanding_input_tokens[d] + pressed * uncached) * prefill_s_per_token[d]
        decode_s = (w_b * outstanding_output_tokens[d] + pressed * output_tokens) * decode_s_per_token[d]
        costs[d] = prompt_sigma * prefill_s + output_sigma * decode_s + w_q * queue_count[d]
    return costs


class CostModel(Router):
    """Sends a request where, over the candidates d, this is least (in seconds):

        w_b * backlog_s(d) * sigma + w_s * n * tau(d) * (1 + rho * pressure(d)) * sigma + w_q * queue_count(d)

    In a decode pool n is the predicted output length, tau = decode_s_per_token and backlog_s the ledger's outstanding
    predicted output times tau; in a prefill pool n is the uncached part of the prompt, tau = prefill_s_per_token and
    backlog_s the outstanding uncached prompt tokens times tau; in a mixed pool both add up, the queue counting once.
    pressure(d): share of d's KV capacity in use after admission, (kv_used_tokens + prompt + predicted output outside
    prefill pools) / kv_capacity_tokens, as if no block were shared, above 1 where it would not fit.
    sigma: a reference objective over the request's own, for TTFT on the prompt's terms and for TPOT on the output's; a
    request asking for half the reference weighs its seconds twice against the queue.
    Source: arXiv:2609.16206, whose weights are not known.
    """

    backlog_weight: NonNegative
    service_weight: NonNegative
    queue_weight_s: NonNegative
    kv_pressure_weight: NonNegative
    weights_source: str
    reference_ttft_s: Sourced
    reference_tpot_s: Sourced

    def costs(self, request: RequestView, pool: PoolView) -> Floats:
        """Cost of each instance, shape (m,), in seconds."""
        prompt_tokens = 0.0 if pool.role == "decode" else float(request.input_tokens)
        output_tokens = 0.0 if pool.role == "prefill" else request.predicted_output_tokens
        return _costs(
            (self.backlog_weight, self.service_weight, self.queue_weight_s, self.kv_pressure_weight),
            (prompt_tokens, self.reference_ttft_s.value / request.slo_ttft_s),
            (output_tokens, self.reference_tpot_s.value / request.slo_tpot_s),
            request.input_tokens + output_tokens,
            pool.queue_count,
            pool.kv_used_tokens,
            pool.kv_capacity_tokens,
            pool.outstanding_input_tokens,
            pool.outstanding_output_tokens,
            pool.matched_tokens,
            pool.prefill_s_per_token,
            pool.decode_s_per_token,
        )

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The position with the least cost."""
        return least(self.costs(request, pool), rng.random())
