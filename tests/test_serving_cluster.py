"""The cluster: hand-offs, closed loops, and what the router sees. A step takes 1 s and 0.01 s for each token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from serving_scenarios import Request, engine, links, mixed, names, option, scenario, split

from pipeline.placement.base import KV_HANDOFF, Placement
from pipeline.routing.base import PoolView, RequestView, Router, RouterState
from pipeline.serving import recorder
from pipeline.serving.clock import Clock
from pipeline.serving.link import BLOCKS, BUSY
from pipeline.serving.simulate import simulate

HBM = 0
SEEN: list[tuple[RequestView, dict]] = []


class Watcher(Router):
    """Sends everything to the first instance, or in turn, and keeps what it sees."""

    in_turn: bool = False

    def pick(self, request: RequestView, pool: PoolView, state: RouterState, rng: np.random.Generator) -> int:
        fields = {name: getattr(pool, name) for name in PoolView.__slots__}
        copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in fields.items()}
        SEEN.append((request, copies))
        return request.request_id % pool.instance_ids.size if self.in_turn else 0


@pytest.fixture
def seen():
    SEEN.clear()
    return SEEN


def test_the_first_token_comes_from_prefill_and_the_hand_off_falls_into_the_first_gap():
    output = simulate(scenario([Request(0.0, 100, 3)], cluster=split()))
    # Prompt until 2.0; 7 blocks of 1 s over the NICs; then two tokens of 1.01 s.
    assert output.first_token_s[0] == pytest.approx(2.0)
    assert output.handoff_s[0] == pytest.approx(7.0)
    assert output.last_token_s[0] == pytest.approx(2 + 7 + 2 * 1.01)
    assert output.of_last_stay("max_gap_s")[0] == pytest.approx(8.01)
    account = output.accounts[1, HBM, HBM, KV_HANDOFF]
    assert (account[BLOCKS], account[BUSY]) == (7, 7.0)
    assert output.instance.tolist() == [0, 1]


def test_one_token_outputs_end_at_the_prefill_instance():
    output = simulate(scenario([Request(0.0, 100, 1)], cluster=split()))
    assert output.last_token_s[0] == pytest.approx(2.0)
    assert np.isnan(output.handoff_s[0])
    assert output.accounts.sum() == 0


def test_hand_offs_from_one_instance_wait_for_one_another():
    requests = [Request(0.0, 32, 2), Request(0.0, 32, 2)]
    output = simulate(scenario(requests, cluster=split(1, 2)))
    assert output.handoff_s.tolist() == [pytest.approx(2.0), pytest.approx(4.0)]


def test_hand_offs_into_one_instance_wait_for_one_another():
    requests = [Request(0.0, 32, 2), Request(0.0, 32, 2)]
    output = simulate(scenario(requests, cluster=split(2, 1)))
    assert sorted(output.handoff_s.tolist()) == [pytest.approx(2.0), pytest.approx(4.0)]


def test_prefill_blocks_stay_pinned_until_the_hand_off_ends():
    # Both pools have 5 blocks; the first request holds 4 at its prefill instance until 1.64 + 4.
    output = simulate(scenario([Request(0.0, 64, 2), Request(0.5, 64, 2)], hbm=5, cluster=split()))
    assert output.rows.scheduled_s[1] == pytest.approx(1.64 + 4.0)


def test_decode_blocks_are_reserved_before_the_hand_off_begins():
    # The decode instance has 5 blocks: the second request's KV (4) comes when the first (4, then 5) has ended.
    requests = [Request(0.0, 64, 9), Request(0.0, 64, 2)]
    output = simulate(scenario(requests, hbm=5, cluster=split(2, 1)))
    first_end_s = 1.64 + 4.0 + 8 * 1.01
    assert output.last_token_s[0] == pytest.approx(first_end_s)
    assert output.handoff_s[1] == pytest.approx(first_end_s + 4.0 - 1.64)
    assert output.last_token_s[1] == pytest.approx(first_end_s + 4.0 + 1.01)


def test_blocks_that_the_decode_instance_has_are_not_sent_again():
    chain = names("a", 4)
    requests = [Request(0.0, 64, 2, chain), Request(50.0, 70, 2, chain)]
    output = simulate(scenario(requests, cluster=split()))
    assert output.handoff_s.tolist() == [pytest.approx(4.0), pytest.approx(1.0)]
    assert output.accounts[1, HBM, HBM, KV_HANDOFF, BLOCKS] == 5


def test_a_request_preempted_at_its_decode_instance_computes_its_prompt_there():
    # 7 blocks of 16: 3 + 3 arrive, each needs a fourth after its first token, and there is one.
    requests = [Request(0.0, 47, 20), Request(0.0, 47, 20)]
    output = simulate(scenario(requests, hbm=7, cluster=split(2, 1)))
    preempted = output.rows.preemption_count[2:]
    assert sorted(preempted.tolist()) == [0, 1]
    victim = int(preempted.argmax())
    # Tokens at both NICs' ends: 3 s after 1.47 for the first, 6 s for the second.
    assert output.last_token_s[victim] > output.last_token_s[1 - victim] + 1.47
    assert output.of_last_stay("generated_tokens").tolist() == [20, 20]


def test_the_next_turn_comes_when_the_answer_is_there_and_the_user_has_thought():
    turns = [
        Request(0.0, 100, 2, session=7),
        Request(0.0, 100, 1, session=7, think_s=5.0),
        Request(0.0, 100, 1, session=7, think_s=0.0),
    ]
    output = simulate(scenario(turns))
    end_s = 2.0 + 1.01
    assert output.arrival_s.tolist() == [0.0, pytest.approx(end_s + 5), pytest.approx(end_s + 5 + 2)]
    assert output.last_token_s[2] == pytest.approx(end_s + 5 + 2 + 2)


def test_a_rejected_turn_does_not_end_the_session():
    turns = [Request(1.0, 5000, 2, session=7), Request(0.0, 100, 1, session=7, think_s=5.0)]
    output = simulate(scenario(turns, hbm=10))
    assert output.reject_reason.tolist() == ["exceeds_kv_capacity", ""]
    assert output.arrival_s.tolist() == [1.0, 6.0]


def test_a_turn_at_another_instance_finds_it_as_it_was_then():
    # Session 0 thinks for no time, so its second turn reaches the other instance in the middle of a step.
    requests = [
        Request(0.0, 50, 1, session=0),
        Request(0.0, 100, 3, session=1),
        Request(9.0, 100, 1, session=0, think_s=0.0),
    ]
    router = Watcher(poll_interval_s=0.0, drain="completion", in_turn=True)
    output = simulate(scenario(requests, cluster=mixed(2), router=router))
    assert output.instance.tolist() == [0, 1, 0]
    assert output.arrival_s[2] == pytest.approx(1.5)
    assert output.rows.scheduled_s[2] == pytest.approx(1.5)


def test_the_router_sees_the_last_poll_and_never_the_present(seen):
    router = Watcher(poll_interval_s=2.0, drain="completion")
    requests = [
        Request(0.0, 100, 4),
        Request(0.5, 160, 2),
        Request(3.0, 10, 1),
        Request(4.5, 10, 1),
        Request(4.9, 10, 1),
        Request(9.0, 10, 1),
    ]
    simulate(scenario(requests, router=router))
    views = [pool for _, pool in seen]
    # Steps: A [0, 2), A + B [2, 4.61), A + B + C + D [4.61, 5.83), A + E [5.83, 6.94). At 4.9 the last poll was at 4.
    assert [v["snapshot_age_s"] for v in views] == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.9, 1.0])
    assert [int(v["running_count"][0]) for v in views] == [0, 0, 2, 2, 2, 0]
    assert [int(v["kv_used_tokens"][0]) for v in views] == [0, 0, 17 * 16, 17 * 16, 17 * 16, 0]
    assert [int(v["queue_count"][0]) for v in views] == [0] * 6
    assert [int(v["sent_since_poll_count"][0]) for v in views] == [0, 1, 0, 0, 1, 0]


def test_a_poll_counts_who_waits(seen):
    router = Watcher(poll_interval_s=1.0, drain="completion")
    requests = [
        Request(0.0, 100, 2),
        Request(0.5, 10, 1),
        Request(0.6, 10, 1),
        Request(3.6, 10, 1),
        Request(4.9, 10, 1),
    ]
    simulate(scenario(requests, router=router, engine=engine(max_running=1)))
    # A runs until 3.01, B until 4.11, C until 5.21. Who came during a step counts from its end on.
    assert [int(pool["queue_count"][0]) for _, pool in seen] == [0, 0, 0, 2, 1]


def test_the_ledger_learns_when_tokens_come_back_and_not_before(seen):
    router = Watcher(poll_interval_s=0.05, drain="completion")
    requests = [
        Request(0.0, 100, 3),
        Request(1.9, 10, 1),
        Request(2.1, 10, 1),
        Request(4.2, 10, 1),
        Request(9.0, 10, 1),
    ]
    simulate(scenario(requests, router=router, engine=engine(max_running=1)))
    views = [pool for _, pool in seen]
    assert [int(v["in_flight_count"][0]) for v in views] == [0, 1, 2, 2, 0]
    assert [int(v["outstanding_input_tokens"][0]) for v in views] == [0, 100, 10, 20, 0]
    assert [float(v["outstanding_output_tokens"][0]) for v in views] == [0, 211, 422, 422, 0]


def test_a_ledger_that_drains_on_the_stream_sees_tokens_as_they_come(seen):
    router = Watcher(poll_interval_s=1.0, drain="stream")
    simulate(scenario([Request(0.0, 100, 5), *(Request(at_s, 10, 1) for at_s in (2.5, 3.0, 3.2))], router=router))
    # Tokens at 2.0, 3.01, 4.02, ...
    outstanding = [float(pool["outstanding_output_tokens"][0]) for _, pool in seen]
    assert outstanding == [0, 211 - 1, 2 * 211 - 1, 3 * 211 - 2]


def test_the_router_is_asked_once_per_role_at_arrival_and_never_told_the_length(seen):
    router = Watcher(poll_interval_s=0.05, drain="completion")
    output = simulate(scenario([Request(3.0, 100, 7)], cluster=split(2, 3), router=router))
    assert [pool["role"] for _, pool in seen] == ["prefill", "decode"]
    assert [pool["instance_ids"].tolist() for _, pool in seen] == [[0, 1], [2, 3, 4]]
    assert all(view.arrival_s == 3.0 and view.predicted_output_tokens == 211 for view, _ in seen)
    assert output.decisions.instance.tolist() == [0, 2]


def test_the_router_is_not_told_blocks_of_the_output_or_of_a_cache_that_is_off(seen):
    router = Watcher(poll_interval_s=0.05, drain="completion")
    chain = names("a", 4)
    simulate(scenario([Request(0.0, 40, 30, chain)], router=router))
    simulate(scenario([Request(0.0, 40, 30, chain)], router=router, engine=engine(prefix_cache=False)))
    assert [view.prefix_block_ids.size for view, _ in seen] == [2, 0]


def test_prefixes_sent_are_matched_and_recorded(seen):
    router = Watcher(poll_interval_s=0.05, drain="completion")
    chain = names("a", 4)
    output = simulate(
        scenario([Request(0.0, 64, 1, chain), Request(9.0, 64, 1, chain)], cluster=mixed(2), router=router)
    )
    assert output.decisions.chosen_match_tokens.tolist() == [0, 48]
    assert output.decisions.best_match_tokens.tolist() == [0, 48]


def test_the_same_seed_breaks_ties_the_same_way():
    router = option("routing", "random", Router)
    requests = [Request(0.1 * i, 10, 2) for i in range(30)]
    runs = [
        simulate(scenario(requests, cluster=mixed(4), router=router, seed=seed)).instance.tolist() for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) == 4


def test_an_event_in_the_past_is_an_error():
    clock = Clock()
    clock.at(1.0, lambda _: clock.at(0.5, print))
    with pytest.raises(RuntimeError, match="past"):
        clock.step()


def test_events_at_absolute_times_are_exact():
    clock = Clock()
    times = [0.1 + 0.2, 0.3, 1 / 3, math.pi]
    found = []
    for time_s in times:
        clock.at(time_s, lambda _: found.append(clock.now))
    while clock.peek() < math.inf:
        clock.step()
    assert found == sorted(times)


def test_a_faster_hand_off_is_never_slower():
    ends = []
    for bandwidth in np.geomspace(1, 1e6, 20):
        output = simulate(scenario([Request(0.0, 100, 3)], cluster=split(), links=links(bandwidth)))
        ends.append(output.last_token_s[0])
    assert np.all(np.diff(ends) <= 0)


def test_a_link_that_is_behind_takes_no_more_writes():
    # Prompts of 3 blocks push each other out of an HBM of 4; a block is written in 1 s, a prompt computed in 1.48 s.
    chains = [names(f"c{i}", 3) for i in range(20)]
    requests = [Request(0.0, 48, 1, chain) for chain in chains]
    placement = option("placement", "tiered", Placement, write_buffer_s=2.0)
    demoted = {}
    for name, changes in (("unbounded", {}), ("bounded", {"placement": placement})):
        output = simulate(scenario(requests, hbm=4, dram=100, **changes))
        written = [row for row in recorder.tables(output, "cell")["transfers"].to_pylist() if row["cause"] == "demote"]
        demoted[name] = (written[0]["block_count"], written[0]["busy_s"] - output.makespan_s)
    assert demoted["unbounded"][0] >= 55
    assert demoted["unbounded"][1] > 20
    # What is accepted ends within the buffer of 2 s and the batch of 3 blocks that was under way.
    assert demoted["bounded"][0] < demoted["unbounded"][0]
    assert demoted["bounded"][1] <= 2 + 3


def test_a_decode_instance_fetches_from_the_prefill_instance_what_it_has_only_below_hbm():
    chain, other = names("a", 3), names("b", 3)
    # The decode instance has computed nothing: its HBM of 4 blocks keeps the first request's, then the second's.
    requests = [Request(0.0, 49, 3, chain), Request(100.0, 49, 3, other), Request(200.0, 49, 3, chain)]
    output = simulate(scenario(requests, hbm=5, dram=100, cluster=split()))
    moves = recorder.tables(output, "cell")["transfers"].to_pylist()
    onboarded = [row for row in moves if row["cause"] == "onboard" and row["instance_id"] == 1]
    assert onboarded == []
    (handed_over,) = [row["block_count"] for row in moves if row["cause"] == "kv_handoff"]
    assert handed_over >= 9
