"""Microseconds of a routing decision, without building its view: python benchmarks/routing_decisions.py > out.json

Beside each the time of numpy's argmin over the same number of floats, in the same run: what any argmin costs.
"""

from __future__ import annotations

import json
import sys
import timeit
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from routing_pools import CONF, pool, request, rng, router  # noqa: E402

REPEATS, DECISIONS = 7, 2000


def least_us(statement: object) -> float:
    """Least of several means, microseconds."""
    return min(timeit.repeat(statement, number=DECISIONS, repeat=REPEATS)) / DECISIONS * 1e6  # type: ignore[arg-type]


def main() -> None:
    rows = []
    for count in (8, 256):
        argmin_us = least_us(np.ones(count).argmin)
        for path in sorted((CONF / "routing").glob("*.yaml")):
            chosen, view, ask, draws = router(path.stem), pool(count), request(), rng()
            state = chosen.start()
            decision_us = least_us(lambda c=chosen, v=view, a=ask, s=state, d=draws: c.choose(a, v, s, d))
            rows.append(
                {
                    "router": path.stem,
                    "instance_count": count,
                    "decision_us": decision_us,
                    "ratio_to_argmin": decision_us / argmin_us,
                }
            )
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
