"""Pools and requests for the routing tests: everything idle and equal but what a test names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.routing.base import PoolView, RequestView, Router
from pipeline.routing.instances import Instances, make_instances
from pipeline.spec import build
from pipeline.values import Role

CONF = Path(__file__).parent.parent / "conf"


def router(name: str, **changes: Any) -> Router:
    """The router of conf/routing/`name`.yaml with some values changed."""
    config = yaml.safe_load((CONF / "routing" / f"{name}.yaml").read_text())
    return build({**config, **changes}, "routing", Router)


def request(**changes: Any) -> RequestView:
    values = {
        "request_id": 7,
        "session_id": 1,
        "class_name": "chat",
        "arrival_s": 0.0,
        "input_tokens": 400,
        "prefix_block_ids": np.zeros(0, np.int64),
        "slo_ttft_s": 0.175,
        "slo_tpot_s": 0.0397,
        "predicted_output_tokens": 100.0,
    }
    return RequestView(**{**values, **changes})


def instances(count: int, **changes: Any) -> Instances:
    ones = np.ones(count, np.int64)
    made = make_instances("mixed", np.arange(count), 1000 * ones, 0.001 * ones, 0.01 * ones)
    for name, values in changes.items():
        made[name] = values
    return made


def pool(count: int, role: Role = "mixed", **changes: Any) -> PoolView:
    return PoolView(role, instances(count, **changes))


class Draws:
    """Stands in for a generator: gives the draws it was told, in order."""

    def __init__(self, *draws: float) -> None:
        self.left = list(draws)

    def random(self) -> float:
        return self.left.pop(0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))
