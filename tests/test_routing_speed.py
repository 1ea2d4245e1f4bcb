"""A decision takes microseconds: under 5 at 8 instances and 50 at 256, with room for a busy machine."""

from __future__ import annotations

import timeit

import pytest
from routing_pools import CONF, pool, request, rng, router

ROOM = 4


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "routing").glob("*.yaml")))
@pytest.mark.parametrize(("count", "limit_us"), [(8, 5), (256, 50)])
def test_a_decision_is_fast(name, count, limit_us):
    chosen, view, ask, draws = router(name), pool(count), request(), rng()
    state = chosen.start()
    chosen.choose(ask, view, state, draws)
    taken_s = min(timeit.repeat(lambda: chosen.choose(ask, view, state, draws), number=500, repeat=5)) / 500
    assert taken_s * 1e6 < ROOM * limit_us
