"""Least loaded: join the shortest queue."""

from __future__ import annotations

import numpy as np
from numba import njit
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.routing.instances import instances_at
from pipeline.routing.ties import least
from pipeline.spec import NonNegative


@njit(cache=True)
def _pick(address: int, count: int, queue_weight: float, uniform: float) -> int:
    loads = np.empty(count)
    for d, known in enumerate(instances_at(address, count)):
        loads[d] = known.in_flight_count + queue_weight * known.queue_count
    return least(loads, uniform)


class LeastLoaded(Router):
    """Sends a request where in_flight_count + queue_weight * queue_count is least.

    in_flight_count is the router's own, up to date; it holds the queued requests already. queue_count is the
    snapshot's: at weight 1 a request that waits counts twice, one that runs once; at 0 the router trusts its own
    count alone.
    """

    queue_weight: NonNegative

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The position with the least load."""
        return _pick(pool.address, pool.count, self.queue_weight, rng.random())
