"""The compiled engine, however far it runs at a time, does what the plain rules say, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_profiles import CORRECTIONS, INTERPOLATION, skew_samples, tables
from serving_reference import Reference, record
from serving_scenarios import Request, engine, links, make_trace, mixed, option, scenario, split

from pipeline.placement.base import Placement
from pipeline.predictor.kernel_tables import kernel_step_table
from pipeline.predictor.step_table import linear_step_table
from pipeline.records import address_of
from pipeline.routing.base import Router
from pipeline.serving.agenda import fill, second_s, settle
from pipeline.serving.cluster import Cluster
from pipeline.serving.engine import Engines
from pipeline.serving.invariants import check
from pipeline.serving.state import make_engine
from pipeline.serving.wiring import LinkLimits

TABLE = linear_step_table(0.01, 0.0003, 1e-6, 2e-5)


@st.composite
def workloads(draw, sessions: int = 4, closed: bool = False):
    """Requests that share prefixes, some of which extend an earlier one with its output."""
    block_tokens = draw(st.sampled_from([1, 4, 16]))
    requests, clock = [], 0.0
    for i in range(draw(st.integers(1, 14))):
        clock += draw(st.sampled_from([0.0, 0.01, 0.2, 1.0]))
        session = draw(st.integers(0, sessions - 1))
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 30))
        listed = (prompt + (output - 1 if draw(st.booleans()) else 0)) // block_tokens
        private = draw(st.integers(0, 10))
        blocks = [f"{session}/{k}" if k < private else f"{session}/{i}/{k}" for k in range(listed)]
        seen = any(r.session == session for r in requests)
        think_s = draw(st.sampled_from([0.0, 0.05])) if closed and seen else float("nan")
        requests.append(Request(clock, prompt, output, blocks, session, think_s))
    trace = make_trace(requests, block_tokens)
    classes = np.array([draw(st.integers(0, 2)) for _ in requests])
    return replace(trace, classes=("any", "urgent", "late"), class_id=classes)


@st.composite
def limits(draw, asynchronous: bool = False):
    return engine(
        max_running=draw(st.integers(1, 5)),
        max_batched_tokens=draw(st.sampled_from([5, 16, 64])),
        prefix_cache=draw(st.booleans()),
        async_scheduling=asynchronous and draw(st.booleans()),
        scheduling=draw(st.sampled_from(["fcfs", "priority", "shortest_first"])),
        class_priority={"urgent": -1, "late": 2},
    )


@st.composite
def placements(draw):
    """Rules that move blocks, and say when."""
    inclusive, flag = draw(st.booleans()), st.booleans()
    policies = ["write_back", *(["write_through", "write_through_selective"] if inclusive else [])]
    write, lower = draw(st.sampled_from(policies)), draw(st.sampled_from(["none", *policies]))
    rule = draw(st.sampled_from(["always_load", "break_even", "split", "deadline"]))
    return option(
        "placement",
        "tiered",
        Placement,
        inclusion="inclusive" if inclusive else "exclusive",
        write_policy=write,
        write_threshold=2 if write == "write_through_selective" else None,
        lower_write_policy=lower,
        lower_write_threshold=2 if lower == "write_through_selective" else None,
        lower_order=draw(st.sampled_from(["leaf_first", "root_first"])),
        keeps_on_the_way=inclusive and draw(flag),
        hits_count_below=inclusive and draw(flag),
        spares_hbm=inclusive and draw(flag),
        writes_output=draw(flag),
        evict_ratio=draw(st.sampled_from([0.0, 0.5])),
        when_writes_lag=draw(st.sampled_from(["wait", "drop"])),
        write_buffer_s=draw(st.sampled_from([0.0, 0.01, 0.1])),
        load_or_recompute=rule,
        deadline_s=0.05 if rule == "deadline" else None,
    )


@st.composite
def plants(draw):
    """Tiers below HBM, what instances share, links fast and slow, and what transfers take from decoding."""
    rate_bytes_per_s = draw(st.sampled_from([300.0, 3000.0, 100_000.0]))
    limits = LinkLimits(
        both_ways_bytes_per_s=draw(st.sampled_from([None, 1.2 * rate_bytes_per_s])),
        switch_bytes_per_s=draw(st.sampled_from([None, 1.5 * rate_bytes_per_s])),
        gpus_per_switch=draw(st.sampled_from([1, 2])),
        host_dram_bytes_per_s=draw(st.sampled_from([None, 1.7 * rate_bytes_per_s])),
        pool_bytes_per_s=draw(st.sampled_from([None, 0.8 * rate_bytes_per_s])),
    )
    sizes = {"dram": draw(st.sampled_from([0, 6])), "ssd": draw(st.sampled_from([0, 20]))}
    sizes["remote"] = draw(st.sampled_from([0, 0, 15]))
    scopes = draw(st.dictionaries(st.sampled_from(list(sizes)), st.sampled_from(["node", "cluster"])))
    return sizes | {
        "shared_by": scopes,
        "placement": draw(placements()),
        "links": links(rate_bytes_per_s, 0.001),
        "link_limits": limits,
        "instances_per_node": draw(st.sampled_from([1, 2, 8])),
        "hbm_bytes_per_s": draw(st.sampled_from([None, 10_000.0, 200_000.0])),
    }


def one_at_a_time(patch) -> None:
    """Let engines be asked again before every boundary of a step, those too of which nothing is to be heard."""
    whole = Engines.advance

    def advance(self, limit_s):
        first_s, _ = whole(self, -np.inf)
        for machine in self._engines:
            machine.quiet_s = 0.0
        return whole(self, min(limit_s, np.nextafter(first_s, np.inf)))

    patch.setattr(Engines, "advance", advance)


def fields(output):
    rows = output.rows
    return {name: np.array(rows[name]).tobytes() for name in rows.dtype.names} | {
        "handoff": output.handoff_s.tobytes(),
        "accounts": output.accounts.tobytes(),
        "decisions": b"".join(np.array(value).tobytes() for value in vars(output.decisions).values()),
    }


def assert_same(output, expected, what: str) -> None:
    """Every byte of requests and decisions; integrals over time as far as the order of their sums allows."""
    found, wanted = fields(output), fields(expected)
    assert not [name for name in wanted if found[name] != wanted[name]], what
    for use, other in zip(output.instances, expected.instances, strict=True):
        np.testing.assert_allclose(use.batch_s, other.batch_s, rtol=1e-9, atol=1e-12, err_msg=what)
        np.testing.assert_allclose(use.bins, other.bins, rtol=1e-9, atol=1e-9, err_msg=what)
        assert use.step_s == pytest.approx(other.step_s, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(trace=workloads(), limits=limits(), spare=st.integers(0, 12))
def test_the_engine_follows_the_plain_rules(trace, limits, spare):
    least = int(-(-(trace.input_tokens + trace.output_tokens - 1).max() // trace.block_tokens))
    case = scenario(trace, hbm=least + spare, engine=limits, step_table=TABLE)
    output = Cluster(case).run()
    check(output)
    expected = record(Reference(case).run())
    found = np.array([output.first_token_s, output.last_token_s, output.rows.max_gap_s, output.rows.preemption_count])
    np.testing.assert_array_equal(found.T, expected)


CLUSTERS = {"single": mixed(), "mixed": mixed(3), "split": split(2, 2)}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("closed", [False, True])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_one_event_per_step_and_one_call_for_many_give_the_same_bytes(cluster, closed, data):
    trace = data.draw(workloads(closed=closed))
    least = int(-(-(trace.input_tokens + trace.output_tokens).max() // trace.block_tokens))
    case = scenario(
        trace,
        hbm=least + data.draw(st.integers(0, 12)),
        **data.draw(plants()),
        engine=data.draw(limits(asynchronous=True)),
        cluster=CLUSTERS[cluster],
        step_table=TABLE,
        router=option(
            "routing",
            "cost_model",
            Router,
            drain=data.draw(st.sampled_from(["completion", "stream"])),
            poll_interval_s=data.draw(st.sampled_from([0.0, 0.05, 0.3])),
        ),
    )
    long_run = Cluster(case).run()
    check(long_run)
    again = Cluster(case).run()
    assert fields(again) == fields(long_run), "same seed, other bytes"
    assert all((a.bins == b.bins).all() for a, b in zip(again.instances, long_run.instances, strict=True))
    assert_same(Cluster(case, coasts=False).run(), long_run, "coasting changes something")
    with pytest.MonkeyPatch.context() as patch:
        one_at_a_time(patch)
        assert_same(Cluster(case).run(), long_run, "asking at every boundary changes something")


@settings(max_examples=40, deadline=None)
@given(trace=workloads(), limits=limits())
def test_runs_of_decoding_see_the_same_unequal_lengths(trace, limits):
    slower = CORRECTIONS.model_copy(update={"prefill_step_s": 0.5})
    measured = kernel_step_table(tables(skew_samples()), 2, limits, INTERPOLATION, slower, 0)
    case = scenario(trace, engine=limits, step_table=measured)
    assert_same(Cluster(case).run(), Cluster(case, coasts=False).run(), "coasting changes something")


@settings(max_examples=60, deadline=None)
@given(clocks=st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, np.inf]), min_size=1, max_size=20), data=st.data())
def test_the_agenda_names_who_comes_next(clocks, data):
    engines = [make_engine(i, 1, 1, 1, 0, 2) for i in range(len(clocks))]
    world = np.array([[address_of(one), 0] for one in engines])
    heap = np.zeros(len(clocks), np.int64)

    def check_order():
        order = sorted(range(len(clocks)), key=lambda i: (clocks[i], i))
        assert heap[0] == order[0]
        assert second_s(world, heap) == (clocks[order[1]] if len(order) > 1 else np.inf)

    for one, clock_s in zip(engines, clocks, strict=True):
        one.clock_s = clock_s
    fill(world, heap)
    check_order()
    for _ in range(10):
        first = int(heap[0])
        clocks[first] += data.draw(st.sampled_from([0.0, 0.5, 3.0]))
        engines[first].clock_s = clocks[first]
        settle(world, heap, 0)
        check_order()
