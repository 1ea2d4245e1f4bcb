"""Output-length predictors: what they learn, what they may know, how wrong they are told to be."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from routing_pools import CONF, request, rng

from pipeline.routing.length import LengthPredictor
from pipeline.spec import InputError, build

TRUTH = (np.array([10, 11, 12]), np.array([5, 700, 1]))


def predictor(name, **changes):
    config = yaml.safe_load((CONF / "length" / f"{name}.yaml").read_text())
    return build({**config, **changes}, "length", LengthPredictor)


def prior(tokens):
    return {"value": tokens, "source": "test", "as_of": "2026-01"}


def test_constant_knows_nothing():
    chosen = predictor("constant", tokens=prior(300))
    state = chosen.start(*TRUTH, rng())
    chosen.observe(request(), 5000, state)
    assert chosen.predict(request(), state) == 300
    assert predictor("constant", tokens=prior(0)).predict(request(), state) == 1  # every output has a token


def test_per_class_mean_starts_from_its_prior_and_learns_each_class():
    chosen = predictor("per_class_mean", prior_tokens=prior(200), prior_count=2)
    state = chosen.start(*TRUTH, rng())
    chat, agent = request(class_name="chat"), request(class_name="agent")
    assert chosen.predict(chat, state) == 200
    chosen.observe(chat, 500, state)
    assert chosen.predict(chat, state) == (2 * 200 + 500) / 3
    chosen.observe(chat, 100, state)
    assert chosen.predict(chat, state) == (2 * 200 + 600) / 4
    assert chosen.predict(agent, state) == 200
    assert chosen.predict(chat, chosen.start(*TRUTH, rng())) == 200  # a new simulation starts afresh


@pytest.mark.parametrize("name", ["constant", "per_class_mean"])
def test_only_the_oracle_depends_on_the_truth(name):
    chosen = predictor(name)
    other = (TRUTH[0], TRUTH[1] * 1000)
    ask = request(request_id=11)
    assert chosen.predict(ask, chosen.start(*TRUTH, rng())) == chosen.predict(ask, chosen.start(*other, rng()))


def test_oracle_without_error_tells_the_truth():
    chosen = predictor("oracle")
    state = chosen.start(*TRUTH, rng())
    assert [chosen.predict(request(request_id=number), state) for number in TRUTH[0]] == [5, 700, 1]


@pytest.mark.parametrize("error_ratio", [0.2, 0.5, 1.5])
def test_oracle_errs_by_what_it_is_told(error_ratio):
    chosen = predictor("oracle", error_ratio=error_ratio)
    numbers = np.arange(200_000)
    state = chosen.start(numbers, np.full(numbers.size, 10_000), rng())
    factor = np.array([state.tokens[number] for number in numbers.tolist()]) / 10_000
    assert factor.mean() == pytest.approx(1, abs=0.02)
    assert factor.std() == pytest.approx(error_ratio, rel=0.05)
    assert np.log(factor).std() == pytest.approx(np.sqrt(np.log(1 + error_ratio**2)), rel=0.01)


def test_oracle_errors_hang_on_the_request_not_on_the_order_of_arrival():
    chosen = predictor("oracle", error_ratio=1.0)
    one, other = chosen.start(*TRUTH, rng(4)), chosen.start(*TRUTH, rng(4))
    forward = {number: chosen.predict(request(request_id=number), one) for number in (10, 11, 12)}
    backward = {number: chosen.predict(request(request_id=number), other) for number in (12, 11, 10)}
    assert forward == backward
    assert forward[11] != 700
    assert min(forward.values()) >= 1


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("oracle", "error_ratio", -0.1), ("per_class_mean", "prior_count", 0), ("constant", "tokens", "many")],
)
def test_a_wrong_option_is_refused(name, key, value):
    with pytest.raises(InputError, match=f"^length.{key}"):
        predictor(name, **{key: value})
