"""The engines on real traces: nothing is lost, and however far they run at a time, the records are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml
from serving_scenarios import CONF, links, mixed, scenario, split

from pipeline.predictor.step_table import linear_step_table
from pipeline.serving.cluster import Cluster
from pipeline.serving.simulate import saturation, simulate
from pipeline.spec import build
from pipeline.trace.base import TraceSource
from pipeline.trace.shaping import at_rate

pytestmark = pytest.mark.data
TABLE = linear_step_table(6e-3, 2.5e-5, 1.3e-9, 4.4e-8)
FAST = links(1e9, 1e-5)


@pytest.fixture(scope="module")
def conversation(data):
    config = yaml.safe_load((CONF / "trace" / "mooncake_conversation.yaml").read_text())
    path = str(data / "traces" / "mooncake_conversation.jsonl.gz")
    return build(config | {"path": path, "max_requests": 1500}, "trace", TraceSource).load(0, 131_072).trace


def tiered(trace, **changes):
    return scenario(trace, hbm=800, dram=2000, ssd=4000, step_table=TABLE, links=FAST, **changes)


@pytest.mark.parametrize("cluster", [mixed(1), mixed(3), split(1, 2)], ids=["one", "three", "split"])
def test_a_real_trace_keeps_every_invariant_at_any_stride(conversation, cluster):
    case = tiered(conversation, cluster=cluster)
    output = simulate(case)
    slow = Cluster(case, coasts=False).run()
    for name in ("first_token_s", "last_token_s", "hit_tokens"):
        np.testing.assert_array_equal(output.rows[name], slow.rows[name])
    np.testing.assert_array_equal(output.accounts, slow.accounts)
    assert output.rows.hit_tokens[:, 1:].sum() > 0


def test_a_share_of_the_capacity_is_served_without_a_growing_queue(conversation):
    case = tiered(conversation, cluster=mixed(2))
    capacity_per_s = saturation(case)
    half = simulate(replace(case, trace=at_rate(conversation, 0.5 * capacity_per_s)))
    twice = simulate(replace(case, trace=at_rate(conversation, 2 * capacity_per_s)))
    waited = [np.nanmean(output.rows.scheduled_s - output.arrival_s) for output in (half, twice)]
    assert waited[0] < 0.2 * waited[1]
    served_per_s = twice.request_count / twice.makespan_s
    assert served_per_s == pytest.approx(capacity_per_s, rel=0.25)
