"""Pools and requests for the routing tests: everything idle and equal but what a test names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pipeline.routing.base import PoolView, RequestView, Router
from pipeline.spec import build

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


def pool(count: int, **changes: Any) -> PoolView:
    zeros, ones = np.zeros(count, np.int64), np.ones(count, np.int64)
    values = {
        "role": "mixed",
        "instance_ids": np.arange(count),
        "snapshot_age_s": 0.02,
        "queue_count": zeros,
        "running_count": zeros,
        "kv_used_tokens": zeros,
        "kv_capacity_tokens": 1000 * ones,
        "in_flight_count": zeros,
        "sent_since_poll_count": zeros,
        "outstanding_input_tokens": zeros,
        "outstanding_output_tokens": zeros.astype(float),
        "matched_tokens": zeros,
        "prefill_s_per_token": 0.001 * ones,
        "decode_s_per_token": 0.01 * ones,
    }
    kinds = {name: np.asarray(value).dtype for name, value in values.items() if isinstance(value, np.ndarray)}
    given = {name: np.array(value, kinds[name]) if name in kinds else value for name, value in changes.items()}
    return PoolView(**{**values, **given})


class Draws:
    """Stands in for a generator: gives the draws it was told, in order."""

    def __init__(self, *draws: float) -> None:
        self.left = list(draws)

    def random(self) -> float:
        return self.left.pop(0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))
