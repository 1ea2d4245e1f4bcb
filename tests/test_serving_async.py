"""Async scheduling: the next step is planned when this one begins. A step takes 1 s and 0.01 s for each token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_reference import AsyncReference, record
from serving_scenarios import Request, engine, scenario, split
from test_serving_engine import times
from test_serving_exactness import TABLE, workloads

from pipeline.serving.cluster import Cluster
from pipeline.serving.invariants import check
from pipeline.serving.simulate import simulate


def ahead(requests, max_running: int = 8, **changes):
    limits = engine(async_scheduling=True, max_running=max_running)
    return simulate(scenario(requests, **({"engine": limits} | changes)))


def test_an_idle_engine_starts_at_once_and_a_lone_request_loses_no_time():
    output = ahead([Request(0.5, 100, 3)])
    assert times(output, 0) == [0.5, 2.5, 4.52]
    assert output.rows.taken_s[0] == 0.5
    assert output.makespan_s == pytest.approx(4.02)


def test_an_arrival_waits_for_the_rest_of_the_step_and_for_one_whole_step():
    output = ahead([Request(0.0, 100, 5), Request(2.5, 100, 1)])
    # A: 0-2, 2-3.01, 3.01-4.02 (planned at 2), then A with B: 4.02-6.03 (planned at 3.01).
    assert output.rows.taken_s[1] == pytest.approx(3.01)
    assert times(output, 1) == [3.01, 6.03, 6.03]
    assert times(output, 0) == [0.0, 2.0, 7.04]


def test_a_finished_request_frees_its_place_one_step_late():
    requests = [Request(0.0, 100, 2), Request(0.0, 100, 10), Request(0.0, 100, 1)]
    # 0-3 both prompts; 3-4.02 ends A, and 4.02-5.03 is planned at 3, with A's place taken; C comes in 5.03-7.04.
    assert times(ahead(requests, max_running=2), 2) == [4.02, 7.04, 7.04]


def test_a_place_freed_with_nothing_planned_is_given_at_once():
    requests = [Request(0.0, 100, 2), Request(0.0, 100, 1)]
    assert times(ahead(requests, max_running=1), 1) == [3.01, 5.01, 5.01]


def test_a_request_without_an_output_to_come_is_not_computed_again():
    output = ahead([Request(0.0, 100, 1), Request(0.0, 100, 2)])
    # 200 tokens, then B's one; A is not in it.
    assert output.last_token_s[1] == pytest.approx(3.0 + 1.01)
    assert output.instances[0].step_count == 2


def test_a_request_pushed_out_after_its_last_token_is_done():
    # 4 blocks of 16: A's 33rd token needs a third block, planned while the step that ends B runs, which holds two.
    output = ahead([Request(0.0, 30, 8), Request(0.0, 30, 3)], hbm=4)
    assert output.rows.preemption_count.tolist() == [0, 0]
    assert output.last_token_s[1] == pytest.approx(1.6 + 1.02 + 1.02)


def test_a_hand_off_keeps_the_blocks_of_an_ended_prompt_until_they_have_moved():
    requests = [Request(0.1 * i, 40, 5) for i in range(6)]
    output = ahead(requests, cluster=split(), hbm=8, engine=engine(async_scheduling=True, max_running=3))
    assert not np.isnan(output.last_token_s).any()
    assert all(use.blocks_left == 0 for use in output.instances)


@settings(max_examples=150, deadline=None)
@given(
    trace=workloads(),
    running=st.integers(1, 5),
    budget=st.sampled_from([5, 16, 64]),
    spare=st.integers(0, 12),
)
def test_the_engine_follows_the_plain_rules(trace, running, budget, spare):
    least = int(-(-(trace.input_tokens + trace.output_tokens - 1).max() // trace.block_tokens))
    limits = engine(async_scheduling=True, max_running=running, max_batched_tokens=budget)
    case = scenario(trace, hbm=least + spare, engine=limits, step_table=TABLE)
    output = Cluster(case).run()
    check(output)
    found = np.array([output.first_token_s, output.last_token_s, output.rows.max_gap_s, output.rows.preemption_count])
    np.testing.assert_array_equal(found.T, record(AsyncReference(case).run()))
