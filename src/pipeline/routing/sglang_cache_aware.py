"""SGLang's cache-aware policy: the best prefix match while load is balanced, else the shortest queue."""

from __future__ import annotations

import numpy as np
from numba import njit
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.routing.instances import Ints, instances_at
from pipeline.routing.ties import least
from pipeline.spec import NonNegative, Positive, Ratio


@njit(cache=True)
def _is_imbalanced(load_count: Ints, gap_count: float, gap_ratio: float) -> bool:
    low, high = load_count[0], load_count[0]
    for load in load_count:
        low, high = min(low, load), max(high, load)
    return high - low > gap_count and high > gap_ratio * low


@njit(cache=True)
def _pick(
    address: int,
    count: int,
    input_tokens: int,
    match_ratio: float,
    gap_count: float,
    gap_ratio: float,
    uniform: float,
) -> int:
    pool = instances_at(address, count)
    load_count, matched_tokens = pool.in_flight_count, pool.matched_tokens
    if _is_imbalanced(load_count, gap_count, gap_ratio) or matched_tokens.max() <= match_ratio * input_tokens:
        return least(load_count, uniform)
    return least(-matched_tokens, uniform)


class SglangCacheAware(Router):
    """Sends a request to the longest prefix match, unless load is imbalanced or no match is long enough.

    Load is the router's own in-flight count. Imbalanced: max - min > imbalance_count and max > imbalance_ratio * min.
    Long enough: matched / prompt > match_ratio. Otherwise the least loaded. Upstream matches characters in a tree of
    what it sent to whom, here tokens in the ledger's prefix index; ties are broken at random.
    Source: SGLang sgl-model-gateway/src/policies/cache_aware.rs.
    """

    match_ratio: Ratio
    imbalance_count: NonNegative
    imbalance_ratio: Positive

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The position with the longest match, or the least loaded."""
        return _pick(
            pool.address,
            pool.count,
            request.input_tokens,
            self.match_ratio,
            self.imbalance_count,
            self.imbalance_ratio,
            rng.random(),
        )
