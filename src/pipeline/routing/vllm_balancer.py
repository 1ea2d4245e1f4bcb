"""vLLM's data-parallel balancer: 4 x waiting + running."""

from __future__ import annotations

import numpy as np
from pydantic import Field
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.routing.ties import least
from pipeline.spec import NonNegative


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
        waiting = pool.queue_count + self.own_sends * pool.sent_since_poll_count
        return least(self.waiting_weight * waiting + pool.running_count, rng.random())
