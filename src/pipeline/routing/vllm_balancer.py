"""vLLM's data-parallel balancer: 4 x waiting + running."""

from __future__ import annotations

import numpy as np
from numba import njit
from pydantic import Field
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.routing.instances import instances_at
from pipeline.routing.ties import least
from pipeline.spec import NonNegative


@njit(cache=True)
def _pick(address: int, count: int, waiting_weight: float, own_sends: float, uniform: float) -> int:
    scores = np.empty(count)
    for d, known in enumerate(instances_at(address, count)):
        waiting = known.queue_count + own_sends * known.sent_since_poll_count
        scores[d] = waiting_weight * waiting + known.running_count
    return least(scores, uniform)


class VllmBalancer(Router):
    """Sends a request where waiting_weight * waiting + running is least, both from the last poll.

    As upstream, `waiting` is raised by `own_sends` for each request that this router sent after that poll. Upstream
    breaks ties towards the lowest rank; here they are broken at random.
    Source: vLLM vllm/v1/engine/core_client.py, DPLBAsyncMPClient.get_core_engine_for_request.
    """

    waiting_weight: NonNegative
    own_sends: NonNegative = Field(description="1: each own request since the poll counts as waiting; 0: the bare poll")

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The position with the least score."""
        return _pick(pool.address, pool.count, self.waiting_weight, self.own_sends, rng.random())
