"""The calibrated cost model: backlog, service and queue, weighted by how tight the request's SLO is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.routing.instances import Floats, instances_at
from pipeline.routing.ties import least
from pipeline.spec import NonNegative, Sourced


@njit(cache=True)
def _costs(
    address: int,
    count: int,
    w_b: float,
    w_s: float,
    w_q: float,
    rho: float,
    prompt_tokens: float,
    prompt_sigma: float,
    output_tokens: float,
    output_sigma: float,
    admitted_tokens: float,
) -> Floats:
    costs = np.empty(count)
    for d, known in enumerate(instances_at(address, count)):
        pressed = w_s * (1.0 + rho * (known.kv_used_tokens + admitted_tokens) / known.kv_capacity_tokens)
        uncached = max(prompt_tokens - known.matched_tokens, 0.0)
        prefill_s = (w_b * known.outstanding_input_tokens + pressed * uncached) * known.prefill_s_per_token
        decode_s = (w_b * known.outstanding_output_tokens + pressed * output_tokens) * known.decode_s_per_token
        costs[d] = prompt_sigma * prefill_s + output_sigma * decode_s + w_q * known.queue_count
    return costs


@njit(cache=True)
def _pick(uniform: float, *terms: Any) -> int:
    return least(_costs(*terms), uniform)


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
        return _costs(*self._terms(request, pool))

    def _terms(self, request: RequestView, pool: PoolView) -> tuple[Any, ...]:
        output_tokens = 0.0 if pool.role == "prefill" else request.predicted_output_tokens
        return (
            pool.address,
            pool.count,
            self.backlog_weight,
            self.service_weight,
            self.queue_weight_s,
            self.kv_pressure_weight,
            0.0 if pool.role == "decode" else float(request.input_tokens),
            self.reference_ttft_s.value / request.slo_ttft_s,
            output_tokens,
            self.reference_tpot_s.value / request.slo_tpot_s,
            request.input_tokens + output_tokens,
        )

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The position with the least cost."""
        return _pick(rng.random(), *self._terms(request, pool))
