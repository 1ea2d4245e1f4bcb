"""What a router sees of a pool: polled state with its age, copied; its own book, live."""

from __future__ import annotations

import numpy as np
import pytest
from routing_pools import request

from pipeline.routing.snapshot import PoolConstants, PoolObserver, Snapshot
from pipeline.spec import InputError


def constants(count=3, **changes):
    values = {
        "role": "mixed",
        "instance_ids": np.arange(count) + 2,
        "kv_capacity_tokens": np.full(count, 64),
        "prefill_s_per_token": np.full(count, 0.001),
        "decode_s_per_token": np.full(count, 0.01),
    }
    return PoolConstants(**{**values, **changes})


def observer(count=3):
    return PoolObserver(constants(count), "completion", block_tokens=16, block_count=50)


def test_before_the_first_poll_the_pool_is_idle():
    view = observer().view(request(), 0.03)
    assert view.snapshot_age_s == 0.03
    assert view.queue_count.tolist() == view.running_count.tolist() == view.kv_used_tokens.tolist() == [0, 0, 0]
    assert view.instance_ids.tolist() == [2, 3, 4]


def test_the_view_is_the_last_poll_and_the_present_book():
    seen = observer()
    ask = request(prefix_block_ids=np.arange(5), input_tokens=90)
    seen.ledger.sent(1, ask, 0)
    seen.polled(Snapshot(1.0, np.array([1, 2, 3]), np.array([4, 5, 6]), np.array([7, 8, 9])))
    seen.ledger.sent(1, request(request_id=8, input_tokens=90), 80)
    view = seen.view(ask, 1.25)
    assert view.snapshot_age_s == 0.25
    assert view.queue_count.tolist() == [1, 2, 3]
    assert view.running_count.tolist() == [4, 5, 6]
    assert view.kv_used_tokens.tolist() == [7, 8, 9]
    assert view.kv_capacity_tokens.tolist() == [64, 64, 64]
    assert view.in_flight_count.tolist() == [0, 2, 0]
    assert view.sent_since_poll_count.tolist() == [0, 1, 0]
    assert view.outstanding_input_tokens.tolist() == [0, 100, 0]
    assert view.outstanding_output_tokens.tolist() == [0, 200, 0]
    assert view.matched_tokens.tolist() == [0, 64, 0]  # 64 tokens of capacity hold four blocks of the five
    assert view.backlog_s(1) == pytest.approx(100 * 0.001 + 200 * 0.01)


def test_what_the_engine_does_after_the_poll_is_not_seen():
    seen, queue = observer(), np.array([1, 2, 3])
    seen.polled(Snapshot(1.0, queue, queue, queue))
    queue[:] = 99
    view = seen.view(request(), 1.0)
    assert view.queue_count.tolist() == [1, 2, 3]
    for name in ("queue_count", "in_flight_count", "outstanding_output_tokens"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(view, name)[0] = 5


def test_time_does_not_run_backwards():
    seen, idle = observer(), np.zeros(3, np.int64)
    seen.polled(Snapshot(1.0, idle, idle, idle))
    with pytest.raises(ValueError, match=r"view at 0\.9 s, before the snapshot of 1\.0 s"):
        seen.view(request(), 0.9)
    with pytest.raises(ValueError, match=r"snapshot of 0\.5 s after one of 1\.0 s"):
        seen.polled(Snapshot(0.5, idle, idle, idle))


@pytest.mark.parametrize("wrong", [np.zeros(2, np.int64), np.array([0, -1, 0])])
def test_a_snapshot_that_does_not_fit_is_an_error(wrong):
    seen, idle = observer(), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="running_count"):
        seen.polled(Snapshot(1.0, idle, wrong, idle))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "mixed pool: given no instance, expected at least one"),
        ({"kv_capacity_tokens": np.array([5, 0, 5])}, "kv_capacity_tokens of instance 3: given 0, expected above 0"),
        ({"decode_s_per_token": np.array([1.0, 1.0, np.nan])}, "decode_s_per_token of instance 4: given nan"),
        ({"prefill_s_per_token": np.array([-1.0, 1.0, 1.0])}, "prefill_s_per_token of instance 2: given -1.0"),
        ({"prefill_s_per_token": np.array([1.0])}, "prefill_s_per_token: given 1 for 3 instances"),
    ],
)
def test_constants_that_make_no_sense_are_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        constants(**changes)
