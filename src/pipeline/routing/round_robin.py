"""Round robin: each instance in turn."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from pipeline.routing.base import PoolView, RequestView, Router, RouterState


class Turn(RouterState):
    """Whose turn it is."""

    def __init__(self) -> None:
        self.next = 0


class RoundRobin(Router):
    """Sends requests to the instances in turn, whatever their load."""

    @override
    def start(self) -> Turn:
        """Start at the first instance."""
        return Turn()

    @override
    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        """The next position in turn."""
        assert isinstance(state, Turn)
        index = state.next % pool.instance_ids.size
        state.next = index + 1
        return index
