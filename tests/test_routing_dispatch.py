"""Dispatch: what routers see and decide is, to the last bit, what plain rules say; it refuses what makes no sense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from routing_pools import CONF
from routing_reference import PlainDispatch
from serving_scenarios import NAN, Request, engine, links, make_trace, mixed, option, scenario, split

from pipeline.predictor.step_table import linear_step_table
from pipeline.routing.base import PoolView, Router
from pipeline.routing.length import LengthPredictor
from pipeline.serving import cluster
from pipeline.serving.dispatch import Dispatch
from pipeline.serving.engine import Engines
from pipeline.serving.simulate import simulate
from pipeline.serving.stays import make_stays, successors
from pipeline.spec import InputError

ROUTERS = sorted(path.stem for path in (CONF / "routing").glob("*.yaml"))
CLUSTERS = {"one": mixed(1), "mixed": mixed(3), "split": split(2, 3)}
TABLE = linear_step_table(6e-3, 2.5e-5, 1.3e-9, 4.4e-8)
COLUMNS = [name for name in PoolView.__slots__ if name != "address"]


class Watcher(Router):
    """Draws an instance, and keeps all that it sees."""

    def start(self):
        return []

    def pick(self, request, pool, state, rng):
        shown = [getattr(pool, name) for name in COLUMNS]
        SEEN.append((request, [value.tolist() if isinstance(value, np.ndarray) else value for value in shown]))
        return int(rng.random() * pool.count)


SEEN: list = []


def make_requests(seed, count=70, closed=False, prefixes=True):
    """Requests that come in bursts and share prefixes; some of a single token, some in the same instant."""
    draws, requests, clock_s = np.random.default_rng(seed), [], 0.0
    for i in range(count):
        clock_s += draws.exponential(0.02) if draws.random() < 0.8 else 0.0
        session, group = int(draws.integers(8)), int(draws.integers(5))
        prompt = int(draws.integers(1, 500))
        output = int(draws.integers(1, 90)) if draws.random() < 0.8 else 1
        listed = (prompt + (output - 1 if draws.random() < 0.5 else 0)) // 16 if prefixes else 0
        shared = int(draws.integers(25))
        blocks = [f"{group}/{k}" if k < shared else f"{group}/{i}/{k}" for k in range(listed)]
        known = any(r.session == session for r in requests)
        think_s = float(draws.choice([0.0, 0.03])) if closed and known else NAN
        requests.append(Request(clock_s, prompt, output, blocks, session if closed else i, think_s))
    return replace(make_trace(requests), classes=("a", "b"), class_id=draws.integers(0, 2, count))


def case(seed, router, pools, **changes):
    """A scenario whose other options go with the seed."""
    draws = np.random.default_rng([seed, 1])
    length = str(draws.choice(["constant", "oracle", "per_class_mean"]))
    told = {"error_ratio": 1.0} if length == "oracle" else {}
    return scenario(
        make_requests(seed, closed=bool(draws.integers(2)), prefixes=draws.random() < 0.8),
        hbm=130,
        dram=int(draws.choice([0, 60])),
        step_table=TABLE,
        links=links(1e9, 1e-5),
        cluster=pools,
        engine=engine(max_running=6, prefix_cache=draws.random() < 0.9),
        router=router.model_copy(update={"poll_interval_s": float(draws.choice([0.0, 0.05, 0.3]))}),
        length=option("length", length, LengthPredictor, **told),
        seed=seed,
        **changes,
    )


def outcome(given):
    """Every decision as bytes, and what routers saw."""
    SEEN.clear()
    decisions = simulate(given).decisions
    seen = [(request._replace(prefix_block_ids=request.prefix_block_ids.tolist()), shown) for request, shown in SEEN]
    return {name: (value.dtype, value.tobytes()) for name, value in vars(decisions).items()}, seen


@pytest.mark.parametrize("drain", ["completion", "stream"])
@pytest.mark.parametrize("pools", CLUSTERS)
@pytest.mark.parametrize("name", ["watcher", *ROUTERS])
def test_decisions_are_those_of_the_plain_rules(name, pools, drain, monkeypatch):
    watcher = Watcher(poll_interval_s=0.0, drain=drain)
    router = watcher if name == "watcher" else option("routing", name, Router, drain=drain)
    for seed in range(8 if name == "watcher" else 2):
        given = case(seed, router, CLUSTERS[pools])
        found = outcome(given)
        with monkeypatch.context() as plain:
            plain.setattr(cluster, "Dispatch", PlainDispatch)
            expected = outcome(given)
        assert found == expected
        assert len(found[0]["request"][1]) >= 8 * 60


def make_dispatch(requests, **changes):
    given = scenario(requests, **changes)
    engines = Engines(given, make_stays(given, successors(given.trace)), is_closed_loop=False)
    return Dispatch(given, engines), engines


class Astray(Router):
    """Chooses a position that there may not be."""

    position: int

    def pick(self, request, pool, state, rng):
        return self.position


class Guess(LengthPredictor):
    """Predicts what it is told, and keeps what it is taught."""

    tokens: str  # as text: an option that is a number must be finite

    def start(self, request_id, output_tokens, rng):
        return []

    def predict(self, arrival, state):
        return float(self.tokens)

    def observe(self, arrival, output_tokens, state):
        TAUGHT.append((arrival.request_id, arrival.arrival_s, output_tokens))


TAUGHT: list = []


@pytest.mark.parametrize("position", [-1, 3])
def test_a_router_that_chooses_no_instance_is_named(position):
    router = Astray(poll_interval_s=0.0, drain="completion", position=position)
    dispatch, _ = make_dispatch([Request(0.0, 10, 1)], cluster=mixed(3), router=router)
    with pytest.raises(InputError, match=rf"^mixed pool, request 0: Astray chose position {position}, expected"):
        dispatch.choose(0, 0.0)
    assert dispatch.decisions().request.size == 0


@pytest.mark.parametrize("tokens", ["nan", "-1.0", "8589934592.0"])
def test_a_predicted_length_that_is_none_is_named(tokens):
    dispatch, _ = make_dispatch([Request(0.0, 10, 1)], length=Guess(tokens=tokens))
    with pytest.raises(
        InputError, match=rf"^mixed pool, request 0: Guess predicted {tokens} output tokens, expected 0"
    ):
        dispatch.choose(0, 0.0)


def test_a_predictor_is_taught_what_ended_once_it_is_known_in_order_of_time_instance_and_row():
    TAUGHT.clear()
    output_tokens = [5, 6, 7, 8, 9, 1, 1]
    dispatch, engines = make_dispatch([Request(0.0, 10, n) for n in output_tokens], length=Guess(tokens="1"))
    told = [(2.0, 1, 1, 0), (2.0, 1, 0, 4), (2.0, 0, 5, 0), (2.5, 1, 0, 1), (2.0, 1, 0, 3), (1.5, 1, 9, 2)]
    for request in range(5):
        dispatch.choose(request, 0.1 * request)
    engines.feed[: len(told)], engines.fed[0] = told, len(told)
    dispatch.choose(5, 1.4)
    assert not TAUGHT
    dispatch.choose(6, 2.0)
    assert TAUGHT == [(2, 0.2, 7), (3, 0.1 * 3, 8), (4, 0.4, 9), (0, 0.0, 5)]


def test_an_arrival_before_the_last_one_is_an_error():
    dispatch, _ = make_dispatch([Request(0.0, 10, 1)] * 2)
    dispatch.choose(0, 1.0)
    with pytest.raises(ValueError, match="an arrival before the last one"):
        dispatch.choose(1, 0.9)
