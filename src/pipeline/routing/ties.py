"""The least of some costs, ties broken by a given draw."""

from __future__ import annotations

from numba import njit

from pipeline.routing.instances import Floats, Ints

TIE_RATIO = 1e-9
TIE_FLOOR = 1e-12


@njit(cache=True)
def least(costs: Floats | Ints, uniform: float) -> int:
    """Position of the least of `costs` (m,), m >= 1; `uniform` in [0, 1) says which one where several tie.

    Costs within a billionth of the least tie, so that rounding does not decide. Raises ValueError if the first cost
    is not a number.
    """
    limit = float(costs[0])
    for cost in costs:
        limit = min(limit, float(cost))
    limit += TIE_RATIO * abs(limit) + TIE_FLOOR
    ties = 0
    for cost in costs:
        ties += cost <= limit
    rank = int(uniform * ties)
    for index in range(costs.size):
        if costs[index] <= limit:
            if rank == 0:
                return index
            rank -= 1
    raise ValueError("least: a cost is not a number")
