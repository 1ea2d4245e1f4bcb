"""Tables and figures of a simulation, worked out by hand. A step takes 1 s and 0.01 s for each token."""

from __future__ import annotations

import pytest
from serving_scenarios import Request, engine, mixed, names, scenario, split

from pipeline.serving import recorder
from pipeline.serving.simulate import simulate


def rows(output, table):
    return recorder.tables(output, "cell")[table].to_pylist()


def test_a_request_in_its_table():
    chain = names("a", 4)
    requests = [Request(0.0, 64, 3, chain), Request(1.0, 70, 1, chain, session=9), Request(2.0, 9999, 1)]
    first, second, third = rows(simulate(scenario(requests, hbm=100)), "requests")
    # The second comes while the first's prompt is computed, and has its prompt in the step of the first's second token.
    assert second == {
        "cell_id": "cell",
        "request_id": 1,
        "session_id": 9,
        "class": "all",
        "prefill_instance_id": 0,
        "decode_instance_id": 0,
        "arrival_s": 1.0,
        "input_tokens": 70,
        "output_tokens": 1,
        "hbm_tokens": 64,
        "dram_tokens": 0,
        "ssd_tokens": 0,
        "remote_tokens": 0,
        "recomputed_tokens": 6,
        "served_tier": "hbm",
        "queue_ms": pytest.approx(640.0),
        "onboard_ms": 0.0,
        "handoff_ms": None,
        "ttft_ms": pytest.approx(640.0 + 1070.0),
        "tpot_ms": None,
        "max_itl_ms": None,
        "e2el_ms": pytest.approx(1710.0),
        "preemption_count": 0,
        "status": "completed",
        "is_measured": True,
    }
    assert first["tpot_ms"] == pytest.approx((1070 + 1010) / 2)
    assert first["max_itl_ms"] == pytest.approx(1070)
    assert first["served_tier"] == "recompute"
    assert third["status"] == "rejected:exceeds_kv_capacity"
    assert [third[name] for name in ("prefill_instance_id", "ttft_ms", "e2el_ms", "queue_ms")] == [None] * 4
    assert third["recomputed_tokens"] == 0


def test_a_split_request_in_its_table():
    long, short = rows(simulate(scenario([Request(0.0, 100, 3), Request(20.0, 9, 1)], cluster=split())), "requests")
    assert (long["prefill_instance_id"], long["decode_instance_id"]) == (0, 1)
    assert long["handoff_ms"] == pytest.approx(7000)
    assert long["max_itl_ms"] == pytest.approx(8010)
    assert (short["prefill_instance_id"], short["decode_instance_id"], short["handoff_ms"]) == (0, None, None)


def test_the_slowest_tier_that_gave_tokens_served_a_request():
    chain = names("a", 3)
    requests = [Request(0.0, 48, 1, chain), Request(10.0, 48, 1, names("b", 3)), Request(20.0, 49, 1, chain)]
    output = simulate(scenario(requests, hbm=4, dram=4))
    assert [row["served_tier"] for row in rows(output, "requests")] == ["recompute", "recompute", "dram"]
    assert rows(output, "requests")[2]["onboard_ms"] == pytest.approx(2000)
    onboard = next(row for row in rows(output, "transfers") if row["cause"] == "onboard")
    assert (onboard["block_count"], onboard["transferred_bytes"], onboard["busy_s"]) == (2, 128.0, 2.0)
    hbm, dram = rows(output, "tier_usage")
    # Looked up: 2 + 2 + 3 whole blocks before the last token; 1 of them in HBM, 2 in DRAM, 4 nowhere.
    assert (hbm["lookup_tokens"], hbm["hit_tokens"]) == (7 * 16, 16)
    assert (dram["lookup_tokens"], dram["hit_tokens"]) == (6 * 16, 32)
    assert (hbm["capacity_bytes"], hbm["peak_used_bytes"]) == (4 * 64.0, 4 * 64.0)
    assert hbm["evicted_blocks"] == 5


def test_mean_use_of_a_tier_is_over_time():
    output = simulate(scenario([Request(0.0, 32, 1, names("a", 2)), Request(10.0, 64, 1)], hbm=10))
    # Two blocks from 0 to 11.64, four more from 10 on.
    (hbm,) = rows(output, "tier_usage")
    assert hbm["mean_used_bytes"] == pytest.approx(64 * (2 * 11.64 + 4 * 1.64) / 11.64)


def test_the_time_line_is_a_mean_over_each_interval():
    output = simulate(scenario([Request(0.0, 100, 3)], hbm=10, timeline_interval_s=1.5))
    line = rows(output, "timeline")
    assert [row["start_s"] for row in line] == [0.0, 1.5, 3.0]
    assert [row["length_s"] for row in line] == [1.5, 1.5, pytest.approx(1.02)]
    assert [row["running_count"] for row in line] == [pytest.approx(1.0)] * 3
    assert [row["kv_used_ratio"] for row in line] == [pytest.approx(0.7)] * 3
    assert [row["tokens_per_s"] * row["length_s"] for row in line] == [0.0, pytest.approx(1.0), pytest.approx(2.0)]


def test_waiting_requests_show_in_the_time_line():
    requests = [Request(0.0, 100, 1), Request(0.0, 100, 1), Request(9.0, 100, 1)]
    output = simulate(scenario(requests, engine=engine(max_running=1), timeline_interval_s=2.0))
    line = rows(output, "timeline")
    assert [row["queue_count"] for row in line] == [pytest.approx(x) for x in (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    assert [row["running_count"] for row in line] == [pytest.approx(x) for x in (1.0, 1.0, 0.0, 0.0, 0.5, 1.0)]


def test_a_long_run_has_200_to_400_intervals_that_keep_every_token():
    output = simulate(scenario([Request(7.0 * i, 50, 4) for i in range(300)], cluster=mixed(2)))
    line = rows(output, "timeline")
    assert 200 <= len(line) / 2 <= 401
    assert sum(row["tokens_per_s"] * row["length_s"] for row in line) == pytest.approx(1200)
    assert len({row["length_s"] for row in line[:-1]}) <= 2


def test_decisions_in_their_table():
    output = simulate(scenario([Request(0.02, 100, 3)], cluster=split()))
    prefill, decode = rows(output, "routing_decisions")
    assert (prefill["role"], prefill["instance_id"], decode["role"], decode["instance_id"]) == (
        "prefill",
        0,
        "decode",
        1,
    )
    assert prefill["snapshot_age_ms"] == pytest.approx(20.0)


def test_figures_of_a_run():
    output = simulate(scenario([Request(0.0, 100, 1), Request(0.0, 100, 1), Request(8.0, 100, 1)]))
    found = recorder.figures(output)
    # Two run for 3 s, nobody for 5 s, one for 2 s.
    assert found.makespan_s == pytest.approx(10.0)
    assert found.mean_running_count == pytest.approx((2 * 3 + 1 * 2) / 10)
    assert found.p90_running_count == 2
    assert (found.step_count, found.preemption_count, found.extrapolated_time_ratio) == (2, 0, 0.0)


def test_closed_loops_are_judged_between_warm_up_and_run_out():
    # Three sessions start at 0, 10 and 20 s; a turn of one token takes 1.01 s, and the next one follows 3 s later.
    turns = [(10.0 * k, k, think_s) for k in range(3) for think_s in (float("nan"), 3.0)]
    requests = [Request(start_s, 1, 1, session=k, think_s=think_s) for start_s, k, think_s in turns]
    output = simulate(scenario(requests))
    found = [(round(row["arrival_s"], 2), row["is_measured"]) for row in rows(output, "requests")]
    assert found == [(0, False), (4.01, False), (10, True), (14.01, True), (20, True), (24.01, False)]
    figures = recorder.figures(output)
    assert figures.measured_s == 15
    assert figures.arrived_per_s == pytest.approx(3 / 15)
    # A session takes 1.01 + 3 + 1.01 = 5.02 s, the warm-up a quarter of 20 s.
    assert not figures.is_settled
