"""Analytical anchors: one server, one token each, equals Lindley's recursion on the same draws."""

from __future__ import annotations

import numpy as np
import pytest
from serving_scenarios import engine, mixed, scenario

from pipeline.predictor.step_table import constant_step_table, linear_step_table
from pipeline.serving.simulate import saturation, simulate
from pipeline.trace.request_trace import RequestTrace

COUNT = 5000


def one_token_each(arrival_s, input_tokens) -> RequestTrace:
    count = arrival_s.size
    return RequestTrace(
        name="queue",
        block_tokens=16,
        classes=("all",),
        request_id=np.arange(count),
        session_id=np.arange(count),
        class_id=np.zeros(count, np.int64),
        arrival_s=arrival_s,
        think_s=np.full(count, np.nan),
        input_tokens=input_tokens,
        output_tokens=np.ones(count, np.int64),
        block_offset=np.zeros(count + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        has_prefixes=False,
    )


def lindley(arrival_s, service_s):
    """End of service: each begins when it has come and the one before has gone."""
    end_s, ends = 0.0, []
    for arrival, service in zip(arrival_s, service_s, strict=True):
        end_s = max(arrival, end_s) + service
        ends.append(end_s)
    return np.array(ends)


def draws(seed: int, load: float):
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1.0 / load, COUNT))
    return arrival_s - arrival_s[0], rng


@pytest.mark.parametrize("load", [0.5, 0.9, 1.2])
def test_constant_service_is_m_d_1(load):
    arrival_s, _ = draws(1, load)
    trace = one_token_each(arrival_s, np.full(COUNT, 50))
    table = constant_step_table(1.0)
    output = simulate(scenario(trace, step_table=table, engine=engine(max_running=1)))
    np.testing.assert_allclose(output.last_token_s, lindley(arrival_s, np.ones(COUNT)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_service_by_prompt_length_is_m_m_1(load):
    arrival_s, rng = draws(2, load)
    tokens = 1 + rng.exponential(1000.0, COUNT).astype(np.int64)
    trace = one_token_each(arrival_s, tokens)
    limits = engine(max_running=1, max_batched_tokens=100_000)
    output = simulate(scenario(trace, step_table=linear_step_table(0.0, 1e-3, 0.0, 0.0), engine=limits))
    np.testing.assert_allclose(output.last_token_s, lindley(arrival_s, tokens * 1e-3), rtol=0, atol=1e-9)
    if load == 0.5:
        waited_s = (output.rows.scheduled_s - output.arrival_s).mean()
        assert waited_s == pytest.approx(load / (1 - load), rel=0.15), "and it is near the mean wait of M/M/1"


def test_two_servers_in_turn_are_two_queues():
    arrival_s, _ = draws(3, 1.6)
    trace = one_token_each(arrival_s, np.full(COUNT, 50))
    case = scenario(trace, step_table=constant_step_table(1.0), engine=engine(max_running=1), cluster=mixed(2))
    output = simulate(case)
    for turn in range(2):
        np.testing.assert_allclose(
            output.last_token_s[turn::2], lindley(arrival_s[turn::2], np.ones(COUNT // 2)), rtol=0, atol=1e-9
        )


def test_saturation_is_the_rate_at_which_a_full_server_serves():
    arrival_s, _ = draws(4, 0.01)
    trace = one_token_each(arrival_s, np.full(COUNT, 50))
    case = scenario(trace, step_table=constant_step_table(0.25), engine=engine(max_running=1))
    assert saturation(case) == pytest.approx(4.0)
