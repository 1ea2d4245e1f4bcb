"""Random: every instance with equal chance."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState


class Random(Router):
    """Sends each request to an instance drawn uniformly."""

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """A position drawn uniformly."""
        return int(rng.random() * pool.instance_ids.size)
