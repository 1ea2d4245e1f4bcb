"""The two constants that a router has of an instance: seconds per prompt token and per output token."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pipeline.predictor.step_table import StepTable
from pipeline.predictor.step_time import step_time_s
from pipeline.schema import CONSTANTS
from pipeline.spec import Count, Spec
from pipeline.tables import from_rows


class TypicalLoad(Spec):
    """Where the constants are read off: a prompt of `prompt_tokens`, and `running_requests` over `context_tokens`."""

    prompt_tokens: Count
    running_requests: Count
    context_tokens: Count


class Taus(NamedTuple):
    """prefill_s_per_token: slope of prefill time with prompt length; decode_s_per_token: step time per request."""

    prefill_s_per_token: float
    decode_s_per_token: float


def router_taus(table: StepTable, load: TypicalLoad) -> Taus:
    """Read both constants off the step times, as a calibration run would.

    Prefill: the slope between half and one and a half times the typical prompt, alone in its step. Decode: the step
    time at the typical concurrency and context over the number of requests, since a step gives each one token.
    """
    short, long = max(load.prompt_tokens // 2, 1), max(load.prompt_tokens * 3 // 2, 2)
    prefill_s = (_prefill_s(table, long) - _prefill_s(table, short)) / (long - short)
    requests = load.running_requests
    decode_s, _ = step_time_s(table, 0, 0.0, requests, float(requests * load.context_tokens), requests)
    return Taus(prefill_s, decode_s / requests)


def _prefill_s(table: StepTable, tokens: int) -> float:
    time_s, _ = step_time_s(table, tokens, tokens * tokens / 2, 0, 0.0, 1)
    return float(time_s)


def tau_constants(taus: Taus, load: TypicalLoad, hardware: str, model: str, ranks: int, source: str) -> pa.Table:
    """Both constants as rows of the table constants; `source` says what the step times rest on."""
    prefill = f"slope of prefill time at {load.prompt_tokens} prompt tokens; step times: {source}"
    decode = f"step time over {load.running_requests} requests at {load.context_tokens} tokens; step times: {source}"
    who = {
        "hardware": hardware,
        "model": model,
        "tensor_parallel": ranks,
        "unit": "s_per_token",
        "fit_error_ratio": None,
    }
    named = {
        "tau_prefill_s_per_token": (taus.prefill_s_per_token, prefill),
        "tau_decode_s_per_token": (taus.decode_s_per_token, decode),
    }
    rows = [
        {**who, "name": name, "value": value, "source": text, "as_of": "this run"}
        for name, (value, text) in named.items()
    ]
    return from_rows(CONSTANTS, rows)
