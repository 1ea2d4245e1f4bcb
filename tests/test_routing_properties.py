"""What holds of every router on any pool."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_pools import CONF, pool, request, rng, router

from pipeline.routing.ties import least

NAMES = sorted(path.stem for path in (CONF / "routing").glob("*.yaml"))
ARRAYS = {
    "queue_count": st.integers(0, 40),
    "running_count": st.integers(0, 256),
    "kv_used_tokens": st.integers(0, 60_000),
    "kv_capacity_tokens": st.integers(1, 60_000),
    "in_flight_count": st.integers(0, 300),
    "sent_since_poll_count": st.integers(0, 20),
    "outstanding_input_tokens": st.integers(0, 10**6),
    "outstanding_output_tokens": st.floats(0, 1e6),
    "matched_tokens": st.integers(0, 399),
    "prefill_s_per_token": st.floats(0, 0.01),
    "decode_s_per_token": st.floats(0, 0.1),
}


@st.composite
def pools(draw, sizes=(1, 2, 3, 8, 256)):
    count = draw(st.sampled_from(sizes))
    few = min(count, 8)
    arrays = {
        name: np.resize(draw(st.lists(values, min_size=few, max_size=few)), count) for name, values in ARRAYS.items()
    }
    return pool(count, role=draw(st.sampled_from(["prefill", "decode", "mixed"])), **arrays)


def permuted(view, order):
    return pool(len(order), role=view.role, instance_ids=order, **{name: getattr(view, name)[order] for name in ARRAYS})


def reference_costs(name, chosen, ask, view):
    """The rule of each deterministic router once more, in plain Python."""
    rows = [{key: getattr(view, key)[d].item() for key in ARRAYS} for d in range(view.instance_ids.size)]
    if name == "least_loaded":
        return [r["in_flight_count"] + r["queue_count"] for r in rows]
    if name == "vllm_balancer":
        return [4 * (r["queue_count"] + r["sent_since_poll_count"]) + r["running_count"] for r in rows]
    if name == "sglang_cache_aware":
        loads = [r["in_flight_count"] for r in rows]
        matched = [r["matched_tokens"] for r in rows]
        imbalanced = max(loads) - min(loads) > 32 and max(loads) > 1.1 * min(loads)
        return loads if imbalanced or max(matched) / ask.input_tokens <= 0.5 else [-m for m in matched]
    costs = []
    for r in rows:
        parts = {"prefill": [0.0, 0.0], "decode": [0.0, 0.0]}
        prompt, output = ask.input_tokens, ask.predicted_output_tokens
        admitted = prompt + (0 if view.role == "prefill" else output)
        pressure = 1 + (r["kv_used_tokens"] + admitted) / r["kv_capacity_tokens"]
        parts["prefill"] = [r["outstanding_input_tokens"], 0 if view.role == "decode" else prompt - r["matched_tokens"]]
        parts["decode"] = [r["outstanding_output_tokens"], 0 if view.role == "prefill" else output]
        seconds = 0.0
        for part, (ahead, own) in parts.items():
            sigma = 0.175 / ask.slo_ttft_s if part == "prefill" else 0.0397 / ask.slo_tpot_s
            seconds += sigma * (ahead + own * pressure) * r[f"{part}_s_per_token"]
        costs.append(seconds + 0.1 * r["queue_count"])
    return costs


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(view=pools(), seed=st.integers(0, 2**32))
def test_the_choice_lies_in_the_pool(name, view, seed):
    chosen = router(name)
    assert 0 <= chosen.pick(request(), view, chosen.start(), rng(seed)) < view.instance_ids.size


@pytest.mark.parametrize("name", ["least_loaded", "vllm_balancer", "sglang_cache_aware", "cost_model"])
@settings(max_examples=60, deadline=None)
@given(view=pools(), seed=st.integers(0, 2**32), tightness=st.floats(0.2, 5), data=st.data())
def test_the_choice_is_the_least_by_the_rule_and_follows_a_permutation(name, view, seed, tightness, data):
    chosen = router(name)
    ask = request(slo_tpot_s=0.0397 * tightness, slo_ttft_s=0.175 / tightness)
    costs = np.array(reference_costs(name, chosen, ask, view), float)
    best = set(np.flatnonzero(costs <= costs.min() + 1e-8 * abs(costs.min()) + 1e-11).tolist())
    order = np.array(data.draw(st.permutations(range(view.instance_ids.size))))
    here = chosen.pick(ask, view, chosen.start(), rng(seed))
    there = order[chosen.pick(ask, permuted(view, order), chosen.start(), rng(seed))]
    assert here in best
    assert there in best


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 256), requests=st.integers(0, 600))
def test_round_robin_shares_are_equal_to_within_one(count, requests):
    chosen, view = router("round_robin"), pool(count)
    state = chosen.start()
    shares = Counter(chosen.pick(request(), view, state, rng()) for _ in range(requests))
    most, fewest = max(shares.values(), default=0), min(shares[index] for index in range(count))
    assert most - fewest <= 1


@settings(max_examples=100, deadline=None)
@given(
    costs=st.lists(st.integers(0, 3), min_size=1, max_size=300),
    uniform=st.floats(0, 1, exclude_max=True),
    shift=st.floats(-100, 100),
)
def test_least_cuts_the_draw_evenly_over_the_ties(costs, uniform, shift):
    ties = [index for index, cost in enumerate(costs) if cost == min(costs)]
    assert least(np.array(costs, float) + shift, uniform) == ties[int(uniform * len(ties))]


def test_least_does_not_let_rounding_break_a_tie():
    costs = np.array([0.1 + 0.2, 0.3, 1.0])
    assert costs[0] != costs[1]
    assert [least(costs, uniform) for uniform in (0.0, 0.4, 0.5, 0.9)] == [0, 0, 1, 1]


def test_least_refuses_what_is_not_a_number():
    with pytest.raises(ValueError, match="not a number"):
        least(np.array([np.nan, 1.0]), 0.5)
