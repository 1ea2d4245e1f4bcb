"""The highest rate that meets the SLO, where it can be worked out by hand."""

from __future__ import annotations

import pytest
from serving_scenarios import Request, engine, scenario

from pipeline.predictor.step_table import constant_step_table
from pipeline.serving.capacity import PRECISION, capacity_per_s
from pipeline.spec import InputError
from pipeline.values import Slo


def one_at_a_time(ttft_ms: float):
    """Requests at even distances, each served alone for 1 s."""
    return scenario(
        [Request(float(i), 8, 1) for i in range(200)],
        engine=engine(max_running=1),
        step_table=constant_step_table(1.0),
        slo=Slo(name="any", ttft_ms=ttft_ms, tpot_ms=1.0),
    )


def test_a_server_of_one_second_takes_one_request_a_second():
    # At a rate r > 1 the i-th of 200 waits i (1 - 1/r) s; nine tenths stay within 2.5 s up to r = 1.0084.
    assert 1 / PRECISION < capacity_per_s(one_at_a_time(2500.0)) < 1.0085


def test_more_patience_never_means_less_capacity():
    # Within 22 s stay nine tenths up to 180 (1 - 1/r) = 21, that is r = 1.132.
    assert 1.132 / PRECISION < capacity_per_s(one_at_a_time(22000.0)) < 1.133


def test_an_slo_that_nothing_meets_has_no_capacity():
    with pytest.raises(InputError, match="which no request of made up meets even on an unloaded cluster"):
        capacity_per_s(one_at_a_time(500.0))


def test_a_trace_too_small_to_overload_the_cluster_has_its_own_throughput():
    requests = [Request(float(i), 8, 1) for i in range(10)]
    patient = Slo(name="any", ttft_ms=60_000.0, tpot_ms=1.0)
    few = scenario(requests, engine=engine(max_running=1), step_table=constant_step_table(1.0), slo=patient)
    assert capacity_per_s(few) == pytest.approx(1.0)
