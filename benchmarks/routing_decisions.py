"""Microseconds of a routing decision: python benchmarks/routing_decisions.py > out.json

choose_us: all of Dispatch.choose, with what comes back, polls, and the book, while about 25 requests an instance are in
flight; pick_us: the router alone. CPU time, the least of many means. Beside them numpy's argmin over as many floats in
the same run: what any argmin costs. With prefixes, a prompt of 25 blocks lists 20, of which another prompt may share 8.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from pipeline.provenance import set_numba_cache  # noqa: E402

set_numba_cache(ROOT / "results")  # before anything compiled is imported

from routing_pools import CONF, pool, request, rng  # noqa: E402
from serving_scenarios import Request, Router, make_trace, mixed, option, scenario  # noqa: E402

from pipeline.serving.dispatch import Dispatch  # noqa: E402
from pipeline.serving.engine import Engines  # noqa: E402
from pipeline.serving.state import COMPLETED, FIRST_TOKEN  # noqa: E402
from pipeline.serving.stays import make_stays, successors  # noqa: E402
from pipeline.trace.request_trace import RequestTrace  # noqa: E402

DECISIONS, CHUNK = 6000, 500
RATE_PER_S, FIRST_TOKEN_S, COMPLETED_S = 5.0, 1.0, 5.0
"""Requests per second and instance; when their first token and their end come back."""
BLOCKS, SHARED_BLOCKS, TEMPLATES = 20, 8, 200


def make_requests(instance_count: int, has_prefixes: bool) -> RequestTrace:
    draws = np.random.default_rng(0)
    numbers, blocks = np.arange(DECISIONS), np.zeros((DECISIONS, 0), np.int64)
    if has_prefixes:
        private = TEMPLATES * SHARED_BLOCKS + np.arange(DECISIONS * (BLOCKS - SHARED_BLOCKS))
        shared = draws.integers(0, TEMPLATES, DECISIONS)[:, None] * SHARED_BLOCKS + np.arange(SHARED_BLOCKS)
        blocks = np.hstack([shared, private.reshape(DECISIONS, -1)])
    return replace(
        make_trace([Request(0.0, 1, 1)]),
        request_id=numbers,
        session_id=numbers,
        class_id=np.zeros(DECISIONS, np.int64),
        arrival_s=np.cumsum(draws.exponential(1 / (RATE_PER_S * instance_count), DECISIONS)),
        think_s=np.full(DECISIONS, np.nan),
        input_tokens=np.full(DECISIONS, 400),
        output_tokens=np.full(DECISIONS, 100),
        block_offset=np.arange(DECISIONS + 1) * blocks.shape[1],
        block_ids=blocks.ravel(),
        has_prefixes=has_prefixes,
    )


def least_us(call: Callable[[int], Any], before: Callable[[Iterable[int]], Any] = lambda _chunk: None) -> float:
    """Least CPU time of a call, as a mean over chunks of calls, in microseconds; `before` is not timed."""
    gc.collect()
    gc.disable()
    means = []
    for start in range(0, DECISIONS, CHUNK):
        chunk = range(start, start + CHUNK)
        before(chunk)
        before_ns = time.thread_time_ns()
        for i in chunk:
            call(i)
        means.append((time.thread_time_ns() - before_ns) / CHUNK / 1e3)
    gc.enable()
    return min(means[2:])


def choose_us(name: str, instance_count: int, has_prefixes: bool) -> float:
    trace = make_requests(instance_count, has_prefixes)
    router = option("routing", name, Router)
    case = scenario(trace, hbm=2000, cluster=mixed(instance_count), router=router)
    engines = Engines(case, make_stays(case, successors(trace)), is_closed_loop=False)
    dispatch, arrival_s = Dispatch(case, engines), trace.arrival_s.tolist()

    def come_back(chunk: Iterable[int]) -> None:
        for i in chunk:
            first = int(engines.fed[0])
            engines.feed[first] = (arrival_s[i] + FIRST_TOKEN_S, FIRST_TOKEN, 0, i)
            engines.feed[first + 1] = (arrival_s[i] + COMPLETED_S, COMPLETED, 0, i)
            engines.fed[0] += 2

    return least_us(lambda i: dispatch.choose(i, arrival_s[i]), come_back)


def pick_us(name: str, instance_count: int) -> float:
    router, view, ask, draws = option("routing", name, Router), pool(instance_count), request(), rng()
    state = router.start()
    return least_us(lambda _i: router.pick(ask, view, state, draws))


def main() -> None:
    rows = []
    for instance_count in (4, 16, 256):
        costs = np.ones(instance_count)
        argmin_us = least_us(lambda _i, costs=costs: costs.argmin())  # type: ignore[misc]
        for name in sorted(path.stem for path in (CONF / "routing").glob("*.yaml")):
            for has_prefixes in (False, True):
                row: dict[str, Any] = {"router": name, "instance_count": instance_count, "prefixes": has_prefixes}
                row["choose_us"] = choose_us(name, instance_count, has_prefixes)
                row["pick_us"] = pick_us(name, instance_count)
                row["argmin_us"] = argmin_us
                rows.append(row)
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
