"""Power of two choices: the less loaded of two instances drawn at random."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.spec import NonNegative


class PowerOfTwo(Router):
    """Draws two different instances and takes the one with the lesser load, as `LeastLoaded` defines it.

    Mitzenmacher, "The power of two choices in randomized load balancing" (1996).
    """

    queue_weight: NonNegative

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The less loaded of two drawn positions; if they tie, the one drawn first."""
        count = pool.instance_ids.size
        first = int(rng.random() * count)
        if count == 1:
            return first
        second = (first + 1 + int(rng.random() * (count - 1))) % count
        return first if self._load(pool, first) <= self._load(pool, second) else second

    def _load(self, pool: PoolView, index: int) -> float:
        return float(pool.in_flight_count.item(index) + self.queue_weight * pool.queue_count.item(index))
