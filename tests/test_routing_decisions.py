"""One hand-worked decision after the other, per router."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from routing_pools import CONF, Draws, pool, request, rng, router

from pipeline.spec import InputError, Spec

NAMES = sorted(path.stem for path in (CONF / "routing").glob("*.yaml"))


def pick(name, view, draws=(0.0,), ask=None, **changes):
    chosen = router(name, **changes)
    return chosen.pick(ask or request(), view, chosen.start(), Draws(*draws))


def test_round_robin_goes_round_whatever_the_load():
    chosen, view = router("round_robin"), pool(3, in_flight_count=[9, 0, 0])
    state = chosen.start()
    assert [chosen.pick(request(), view, state, rng()) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert chosen.pick(request(), view, chosen.start(), rng()) == 0  # a new simulation starts afresh


def test_round_robin_survives_a_pool_that_shrinks():
    chosen = router("round_robin")
    state = chosen.start()
    assert [chosen.pick(request(), pool(n), state, rng()) for n in (4, 4, 4, 2, 2)] == [0, 1, 2, 1, 0]


@pytest.mark.parametrize(("draw", "index"), [(0.0, 0), (0.249, 0), (0.25, 1), (0.74, 2), (0.999, 3)])
def test_random_cuts_the_unit_interval_evenly(draw, index):
    assert pick("random", pool(4), draws=(draw,)) == index


def test_least_loaded_adds_the_queue_as_polled_to_its_own_count():
    view = pool(3, in_flight_count=[3, 2, 4], queue_count=[0, 2, 0])  # 3, 4, 4
    assert pick("least_loaded", view) == 0
    assert pick("least_loaded", view, queue_weight=0.0) == 1  # 3, 2, 4
    assert pick("least_loaded", view, queue_weight=0.25) == 1  # 3, 2.5, 4


def test_least_loaded_ignores_running_requests_that_it_did_not_send():
    assert pick("least_loaded", pool(2, in_flight_count=[1, 0], running_count=[0, 50])) == 1


@pytest.mark.parametrize(
    ("draws", "index"),
    [
        ((0.0, 0.0), 1),  # 0 and 1: loads 3 and 2
        ((0.0, 0.9), 2),  # 0 and 2: loads 3 and 1
        ((0.9, 0.0), 2),  # 2 and 0
        ((0.5, 0.9), 1),  # 1 and 0
        ((0.5, 0.0), 2),  # 1 and 2
    ],
)
def test_power_of_two_takes_the_better_of_the_two_drawn(draws, index):
    assert pick("power_of_two", pool(3, in_flight_count=[3, 2, 1]), draws) == index


def test_power_of_two_weighs_the_queue_as_least_loaded_does():
    view = pool(2, in_flight_count=[3, 2], queue_count=[0, 2])
    assert pick("power_of_two", view, (0.0, 0.0)) == 0
    assert pick("power_of_two", view, (0.0, 0.0), queue_weight=0.0) == 1


def test_power_of_two_never_draws_one_instance_twice():
    view = pool(5, in_flight_count=[0, 1, 2, 3, 4])
    chosen, draws = router("power_of_two"), rng()
    assert {chosen.pick(request(), view, chosen.start(), draws) for _ in range(300)} == {0, 1, 2, 3}


def test_vllm_balancer_scores_four_times_waiting_plus_running():
    view = pool(3, queue_count=[1, 0, 2], running_count=[0, 5, 0], in_flight_count=[0, 9, 9])  # 4, 5, 8
    assert pick("vllm_balancer", view) == 0
    assert pick("vllm_balancer", pool(2, queue_count=[1, 0], running_count=[2, 5])) == 1  # 6, 5


def test_vllm_balancer_counts_what_it_sent_since_the_poll_as_waiting():
    view = pool(2, queue_count=[1, 0], running_count=[0, 5], sent_since_poll_count=[1, 0])  # 8, 5
    assert pick("vllm_balancer", view) == 1
    assert pick("vllm_balancer", view, own_sends=0) == 0  # 4, 5


def test_sglang_follows_a_match_of_more_than_half_the_prompt():
    view = pool(3, in_flight_count=[10, 0, 5], matched_tokens=[208, 64, 0])
    assert pick("sglang_cache_aware", view) == 0  # 208/400 > 0.5
    assert pick("sglang_cache_aware", view, ask=request(input_tokens=416)) == 1  # exactly half is not enough
    assert pick("sglang_cache_aware", view, match_ratio=0.6) == 1


@pytest.mark.parametrize(
    ("loads", "index"),
    [
        ([33, 0, 5], 1),  # 33 apart and above 1.1 times nothing: imbalanced
        ([32, 0, 5], 0),  # not more than 32 apart
        ([400, 364, 390], 0),  # 36 apart, but 400 is below 1.1 x 364
        ([401, 364, 390], 1),  # 401 > 400.4
    ],
)
def test_sglang_leaves_the_match_when_load_is_imbalanced(loads, index):
    view = pool(3, in_flight_count=loads, matched_tokens=[384, 0, 0])
    assert pick("sglang_cache_aware", view) == index


def test_cost_model_in_a_decode_pool():
    view = pool(
        3,
        role="decode",
        outstanding_output_tokens=[300, 100, 0],
        queue_count=[0, 5, 0],
        kv_used_tokens=[0, 500, 1000],
        kv_capacity_tokens=[1000, 2000, 4000],
        decode_s_per_token=[0.01, 0.01, 0.02],
        prefill_s_per_token=[9.0, 9.0, 9.0],  # a decode pool computes no prompt
        matched_tokens=[399, 0, 0],
    )
    chosen = router("cost_model")
    # backlog 3, 1, 0 s; service 1, 1, 2 s times 1 + (0 + 500)/1000, 1 + (500 + 500)/2000, 1 + (1000 + 500)/4000
    np.testing.assert_allclose(chosen.costs(request(), view), [3 + 1.5, 1 + 1.5 + 0.5, 2.75], rtol=1e-12)
    assert chosen.pick(request(), view, chosen.start(), Draws(0.0)) == 2
    # three times as loose: the seconds weigh a third, the queue as before
    loose = chosen.costs(request(slo_tpot_s=3 * 0.0397), view)
    np.testing.assert_allclose(loose, [4.5 / 3, 2.5 / 3 + 0.5, 2.75 / 3], rtol=1e-12)
    # twice as tight: 9, 5.5 and 5.5 s, a tie of the last two
    tight = request(slo_tpot_s=0.0397 / 2)
    assert [chosen.pick(tight, view, chosen.start(), Draws(u)) for u in (0.0, 0.49, 0.5, 0.99)] == [1, 1, 2, 2]


def test_cost_model_in_a_prefill_pool():
    view = pool(
        3,
        role="prefill",
        outstanding_input_tokens=[100, 500, 200],
        matched_tokens=[0, 320, 0],
        queue_count=[0, 0, 1],
        decode_s_per_token=[9.0, 9.0, 9.0],  # a prefill pool decodes nothing
    )
    chosen = router("cost_model")
    # backlog 0.1, 0.5, 0.2 s; uncached 400, 80, 400 tokens of 1 ms, times 1 + 400/1000; queue 0, 0, 0.1 s
    expected = [0.1 + 0.4 * 1.4, 0.5 + 0.08 * 1.4, 0.2 + 0.4 * 1.4 + 0.1]
    np.testing.assert_allclose(chosen.costs(request(slo_tpot_s=1e-9), view), expected, rtol=1e-12)
    assert chosen.pick(request(), view, chosen.start(), Draws(0.0)) == 1
    without_match = pool(3, role="prefill", outstanding_input_tokens=[100, 500, 200], queue_count=[0, 0, 1])
    assert chosen.pick(request(), without_match, chosen.start(), Draws(0.0)) == 0


def test_cost_model_in_a_mixed_pool_adds_both_and_counts_the_queue_once():
    view = pool(
        2,
        outstanding_input_tokens=[100, 0],
        outstanding_output_tokens=[0, 50],
        queue_count=[2, 0],
        matched_tokens=[0, 200],
    )
    chosen = router("cost_model")
    # 1 + (400 + 100)/1000 = 1.5; prompt (0.4 or 0.2 s) and output (1 s)
    expected = [0.1 + (0.4 + 1.0) * 1.5 + 0.2, 0.5 + (0.2 + 1.0) * 1.5]
    np.testing.assert_allclose(chosen.costs(request(), view), expected, rtol=1e-12)
    assert chosen.pick(request(), view, chosen.start(), Draws(0.0)) == 1


def test_cost_model_weights_switch_their_terms_off():
    view = pool(2, role="decode", outstanding_output_tokens=[10, 20], queue_count=[1, 2], kv_used_tokens=[500, 0])
    off = {"backlog_weight": 0, "service_weight": 0, "queue_weight_s": 0, "kv_pressure_weight": 0}

    def costs(**on):
        return router("cost_model", **{**off, **on}).costs(request(), view).tolist()

    assert costs() == [0.0, 0.0]
    assert costs(backlog_weight=2) == [0.2, 0.4]
    assert costs(queue_weight_s=3) == [3.0, 6.0]
    assert costs(service_weight=1) == [1.0, 1.0]
    assert costs(service_weight=1, kv_pressure_weight=1) == [2.0, 1.5]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "round_robin"])
def test_ties_are_broken_evenly_and_the_same_way_for_the_same_seed(name):
    def choices(seed):
        chosen, draws = router(name), rng(seed)
        return [chosen.pick(request(), pool(4), chosen.start(), draws) for _ in range(2000)]

    assert choices(3) == choices(3)
    assert choices(3) != choices(4)
    shares = Counter(choices(3))
    assert all(400 < shares[index] < 600 for index in range(4)), shares


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("key", "value"), [("poll_interval_s", -1), ("drain", "never"), ("misspelt", 1)])
def test_a_wrong_option_is_refused(name, key, value):
    with pytest.raises(InputError, match=f"^routing.{key}: "):
        router(name, **{key: value})


def test_routers_are_frozen_and_hold_no_memory():
    for name in NAMES:
        chosen = router(name)
        before = chosen.model_dump()
        state = chosen.start()
        for _ in range(3):
            chosen.pick(request(), pool(3), state, rng())
        assert isinstance(chosen, Spec)
        assert chosen.model_dump() == before
