"""What holds in every simulation, and that a breach is an error with a name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_scenarios import CONF, Request, links, mixed, names, option, scenario, split
from test_serving_exactness import TABLE, limits, workloads

from pipeline.eviction.base import EvictionPolicy
from pipeline.routing.base import Router
from pipeline.serving import recorder
from pipeline.serving.cluster import Cluster as Simulation
from pipeline.serving.invariants import check
from pipeline.serving.simulate import saturation, simulate
from pipeline.spec import InputError
from pipeline.values import Cluster, Engine

EVICTIONS = sorted(path.stem for path in (CONF / "eviction").glob("*.yaml"))
ROUTERS = sorted(path.stem for path in (CONF / "routing").glob("*.yaml"))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), closed=st.booleans())
def test_every_simulation_keeps_them_and_gives_whole_tables(data, closed):
    trace = data.draw(workloads(closed=closed))
    longest = int(-(-(trace.input_tokens + trace.output_tokens).max() // trace.block_tokens))
    case = scenario(
        trace,
        hbm=max(longest - 3 + data.draw(st.integers(0, 12)), 1),
        dram=data.draw(st.integers(0, 8)),
        ssd=data.draw(st.integers(0, 8)),
        eviction=option("eviction", data.draw(st.sampled_from(EVICTIONS)), EvictionPolicy),
        router=option("routing", data.draw(st.sampled_from(ROUTERS)), Router),
        cluster=data.draw(st.sampled_from([mixed(1), mixed(3), split(1, 2), split(2, 1)])),
        instances_per_node=data.draw(st.integers(1, 4)),
        engine=data.draw(limits()),
        step_table=TABLE,
        links=links(data.draw(st.sampled_from([100.0, 3000.0, 1e6])), 0.001),
    )
    output = simulate(case)
    tables = recorder.tables(output, "cell")
    assert tables["requests"].num_rows == trace.request_count
    tokens = tables["requests"].select(
        ["hbm_tokens", "dram_tokens", "ssd_tokens", "remote_tokens", "recomputed_tokens"]
    )
    served = np.array([status == "completed" for status in tables["requests"]["status"].to_pylist()])
    total = np.sum([column.to_numpy() for column in tokens.columns], axis=0)
    np.testing.assert_array_equal(total, np.where(served, trace.input_tokens, 0))
    emitted = np.sum(tables["timeline"]["tokens_per_s"].to_numpy() * tables["timeline"]["length_s"].to_numpy())
    assert emitted == pytest.approx(trace.output_tokens[served].sum())


def done():
    chain = names("a", 4)
    requests = [Request(0.0, 64, 3, chain), Request(1.0, 64, 3, chain), Request(2.0, 9999, 1)]
    return simulate(scenario(requests, hbm=100, cluster=split()))


def test_a_request_that_is_lost_is_named():
    output = done()
    output.rows.last_token_s[[0, 3]] = np.nan
    with pytest.raises(RuntimeError, match=r"arrived = completed \+ rejected: 3 arrived, 1 completed, 1 rejected"):
        check(output)


def test_a_block_still_in_use_is_named():
    output = done()
    uses = [replace(output.instances[0], blocks_left=2), *output.instances[1:]]
    with pytest.raises(RuntimeError, match="instance 0: no block is in use at the end, but 2 are"):
        check(replace(output, instances=uses))


def test_a_move_that_no_link_carried_is_named():
    output = done()
    output.accounts[1, 0, 0, 4, 0] -= 1
    with pytest.raises(RuntimeError, match="instance 1: every block that moved crossed a link"):
        check(output)


def test_tokens_that_were_not_put_out_are_named():
    output = done()
    output.rows.generated_tokens[3] -= 1
    with pytest.raises(RuntimeError, match="every output token is put out"):
        check(output)


def test_a_policy_that_names_no_victim_is_an_error_with_a_name():
    # A stack that holds more than its policy knows cannot come from options; were it so, the engine must not hang.
    cluster = Simulation(scenario([Request(0.0, 64, 1, names("a", 4))], hbm=5))
    _, tiers = cluster._engines.stacks[0]
    tiers.tiers[0].used_blocks = 5
    with pytest.raises(RuntimeError, match="no victim"):
        cluster.run()


def test_no_capacity_is_an_input_error():
    with pytest.raises(InputError, match="no instance can serve any of its requests"):
        saturation(scenario([Request(0.0, 9999, 1)], hbm=10))


def test_an_interval_of_no_length_is_an_input_error():
    with pytest.raises(InputError, match="timeline_interval_s"):
        simulate(scenario([Request(0.0, 9, 1)], timeline_interval_s=0.0))


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "engine").glob("*.yaml")))
def test_every_engine_option_runs(name):
    simulate(scenario([Request(0.0, 100, 5)], engine=option("engine", name, Engine)))


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "cluster").glob("*.yaml")))
def test_every_cluster_option_runs(name):
    output = simulate(scenario([Request(0.0, 100, 5), Request(0.0, 50, 1)], cluster=option("cluster", name, Cluster)))
    assert (output.reject_reason == "").all()


def test_these_tests_see_the_options():
    assert {"lru", "s3fifo"} <= set(EVICTIONS)
    assert {"round_robin", "cost_model"} <= set(ROUTERS)
