"""The rules of the engine, each worked out by hand. A step takes 1 s and 0.01 s for each token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_scenarios import Request, engine, make_trace, names, scenario

from pipeline.predictor.step_table import linear_step_table
from pipeline.serving.cluster import Cluster
from pipeline.serving.simulate import simulate
from pipeline.spec import InputError


def trace_of_four(requests):
    return make_trace(requests, block_tokens=4)


def times(output, request):
    rows = output.rows
    return [
        pytest.approx(value, abs=1e-12)
        for value in (rows.scheduled_s[request], output.first_token_s[request], output.last_token_s[request])
    ]


def test_a_prompt_takes_one_step_and_each_further_token_another():
    output = simulate(scenario([Request(0.0, 100, 3)]))
    assert times(output, 0) == [0.0, 2.0, 4.02]
    assert output.rows.max_gap_s[0] == pytest.approx(1.01)
    assert output.makespan_s == pytest.approx(4.02)


def test_attention_is_charged_by_pairs_and_by_context():
    table = linear_step_table(0.0, 0.0, 1.0, 1.0)
    output = simulate(scenario([Request(0.0, 10, 3)], step_table=table))
    # 10 new tokens on none: 10 x 5 pairs; then one token on 10 and on 11, itself included.
    assert output.first_token_s[0] == pytest.approx(50.0)
    assert output.last_token_s[0] == pytest.approx(50.0 + 11 + 12)


def test_several_prefills_in_a_step_add_their_pairs():
    table = linear_step_table(0.0, 0.0, 1.0, 0.0)
    output = simulate(scenario([Request(0.0, 10, 1), Request(0.0, 20, 1)], step_table=table))
    assert output.first_token_s[1] == pytest.approx(10 * 5 + 20 * 10)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    output = simulate(scenario([Request(0.0, 150, 1)], engine=engine(max_batched_tokens=64)))
    assert output.last_token_s[0] == pytest.approx(1.64 + 1.64 + 1.22)


def test_running_requests_come_first_and_the_rest_of_the_budget_is_a_chunk():
    requests = [Request(0.0, 10, 5), Request(0.5, 100, 2)]
    output = simulate(scenario(requests, engine=engine(max_batched_tokens=64)))
    # A's prompt; A + 63 of B; A + 37 of B; both decode; A alone.
    assert times(output, 0) == [0.0, 1.1, 1.1 + 1.64 + 1.38 + 1.02 + 1.01]
    assert times(output, 1) == [1.1, 1.1 + 1.64 + 1.38, 1.1 + 1.64 + 1.38 + 1.02]
    assert output.rows.max_gap_s[0] == pytest.approx(1.64)


def test_an_arrival_waits_for_the_end_of_the_step():
    output = simulate(scenario([Request(0.0, 100, 1), Request(1.0, 100, 1)]))
    assert times(output, 1) == [2.0, 4.0, 4.0]


def test_an_arrival_at_the_very_end_of_a_step_is_in_the_next():
    output = simulate(scenario([Request(0.0, 100, 2), Request(2.0, 100, 1)]))
    assert output.rows.scheduled_s[1] == 2.0
    assert output.last_token_s[1] == pytest.approx(2.0 + 1 + 1.01)


def test_no_more_than_max_running_requests_run():
    output = simulate(scenario([Request(0.0, 100, 2), Request(0.0, 100, 1)], engine=engine(max_running=1)))
    assert times(output, 1) == [3.01, 5.01, 5.01]


def test_a_request_waits_until_its_whole_prompt_fits_and_nobody_overtakes_it():
    # 10 blocks of 16: A holds 6, then 7; B needs 5, though a chunk of it would fit; C behind it needs 1.
    requests = [Request(0.0, 96, 16), Request(0.1, 80, 1), Request(0.2, 10, 1)]
    output = simulate(scenario(requests, hbm=10, engine=engine(max_batched_tokens=96)))
    end_s = 1.96 + 15 * 1.01
    assert output.last_token_s[0] == pytest.approx(end_s)
    assert output.rows.scheduled_s[1] == pytest.approx(end_s)
    assert output.rows.scheduled_s[2] == pytest.approx(end_s)


def test_a_prefix_is_hit_in_whole_blocks_and_the_last_token_is_computed():
    chain = names("a", 4)
    output = simulate(scenario([Request(0.0, 64, 1, chain), Request(10.0, 64, 1, chain)]))
    assert output.rows.hit_tokens[1].tolist() == [48, 0, 0, 0]
    assert output.last_token_s[1] == pytest.approx(10 + 1.16)


def test_blocks_computed_in_a_step_are_hits_for_whoever_is_admitted_later_in_it():
    chain = names("a", 4)
    output = simulate(scenario([Request(0.0, 64, 1, chain), Request(0.0, 70, 1, chain)]))
    assert output.rows.hit_tokens[1, 0] == 64
    assert output.last_token_s[1] == pytest.approx(1 + 0.01 * (64 + 6))


def test_without_a_prefix_cache_nothing_is_hit():
    chain = names("a", 4)
    requests = [Request(0.0, 64, 1, chain), Request(10.0, 64, 1, chain)]
    output = simulate(scenario(requests, engine=engine(prefix_cache=False)))
    assert output.rows.hit_tokens.sum() == 0
    assert output.last_token_s[1] == pytest.approx(10 + 1.64)


def test_output_that_the_trace_lists_is_cached_too():
    turn, answer = names("a", 2), names("b", 2)
    requests = [Request(0.0, 32, 33, turn + answer), Request(100.0, 80, 1, [*turn, *answer, "c"])]
    output = simulate(scenario(requests))
    assert output.rows.hit_tokens[1, 0] == 64


def test_a_chain_is_hit_only_up_to_its_first_missing_block():
    # Only 3 blocks: the second request pushes the end of the first one's chain out, not its beginning.
    requests = [
        Request(0.0, 48, 1, names("a", 3)),
        Request(10.0, 16, 1, names("b", 1)),
        Request(20.0, 48, 1, names("a", 3)),
    ]
    output = simulate(scenario(requests, hbm=3))
    assert output.rows.hit_tokens[2, 0] == 32


def test_the_last_admitted_is_preempted_and_computes_again_at_the_head_of_the_queue():
    # 4 blocks of 4 tokens. Step 1: prompts of 7 and 6. Step 2: both decode. Step 3: A needs a third block, B must go.
    requests = [Request(0.0, 7, 8), Request(0.0, 6, 8), Request(0.5, 3, 1)]
    output = simulate(scenario(trace_of_four(requests), hbm=4))
    a_end_s = 1.13 + 1.02 + 6 * 1.01
    assert output.last_token_s[0] == pytest.approx(a_end_s)
    # B computes its 6 + 2 tokens anew, before C, which then fits beside it.
    assert output.rows.preemption_count.tolist() == [0, 1, 0]
    assert output.rows.max_gap_s[1] == pytest.approx(a_end_s + 1 + 0.01 * (8 + 3) - (1.13 + 1.02))
    assert output.rows.scheduled_s[2] == pytest.approx(a_end_s)
    assert output.last_token_s[1] == pytest.approx(a_end_s + 1.11 + 5 * 1.01)


def test_a_preempted_request_hits_its_own_blocks():
    # As above, but B's first block of 4 is known to the trace: it is still there when B comes back.
    requests = [Request(0.0, 7, 4), Request(0.0, 6, 8, names("b", 1))]
    output = simulate(scenario(trace_of_four(requests), hbm=4))
    a_end_s = 1.13 + 1.02 + 2 * 1.01
    assert output.last_token_s[0] == pytest.approx(a_end_s)
    assert output.last_token_s[1] == pytest.approx(a_end_s + 1.04 + 5 * 1.01)
    assert output.rows.hit_tokens[1].sum() == 0, "told of the first admission"


def test_nobody_is_admitted_in_a_step_that_preempted():
    # Step 3 preempts B and leaves room for C, waiting since 1.2; it ends with A's last token, and then both come in.
    requests = [Request(0.0, 7, 3), Request(0.0, 6, 3), Request(1.2, 3, 1)]
    output = simulate(scenario(trace_of_four(requests), hbm=4))
    assert output.rows.preemption_count.tolist() == [0, 1, 0]
    assert output.rows.scheduled_s[2] == pytest.approx(1.13 + 1.02 + 1.01)


def ranked(requests, classes):
    trace = trace_of_four(requests)
    return replace(trace, classes=("batch", "chat"), class_id=np.array(classes))


def test_a_class_of_lower_priority_value_is_admitted_first():
    # A runs alone until 2 + 0.01; meanwhile B (batch) and then C (chat) come.
    limits = engine(max_running=1, scheduling="priority", class_priority={"batch": 5, "chat": 1})
    requests = [Request(0.0, 100, 1), Request(0.1, 100, 1), Request(0.2, 100, 1)]
    output = simulate(scenario(ranked(requests, [0, 0, 1]), engine=limits))
    assert output.rows.scheduled_s.tolist() == [0.0, 4.0, 2.0]


def test_under_priority_the_one_of_the_highest_value_is_preempted_though_it_came_first():
    # As in the preemption above, but B (chat) finds no block in step 3: A (batch), scheduled before it, must go.
    limits = engine(scheduling="priority", class_priority={"batch": 5})
    requests = [Request(0.0, 6, 8), Request(0.0, 7, 8)]
    output = simulate(scenario(ranked(requests, [0, 1]), hbm=4, engine=limits))
    assert output.rows.preemption_count.tolist() == [1, 0]
    assert output.last_token_s[1] == pytest.approx(1.13 + 1.02 + 6 * 1.01)


def test_among_requests_of_one_time_the_preempted_one_comes_back_in_its_old_place():
    # As many as fit run; whoever is pushed out is admitted again before those that never ran, as under fcfs.
    requests = [Request(0.0, 6, 8) for _ in range(6)]
    done = {}
    for scheduling in ("fcfs", "priority"):
        limits = engine(scheduling=scheduling, class_priority={"chat": 0})
        done[scheduling] = simulate(scenario(ranked(requests, [1] * 6), hbm=8, engine=limits)).last_token_s.tolist()
    assert done["priority"] == done["fcfs"]
    assert sorted(done["fcfs"]) == done["fcfs"]


def test_priorities_that_change_nothing_are_refused():
    limits = engine(scheduling="priority", class_priority={"chatt": 0})
    with pytest.raises(InputError, match=r"given class 'chatt', which trace .* its classes: batch, chat"):
        simulate(scenario(ranked([Request(0.0, 1, 1)], [0]), engine=limits))
    with pytest.raises(ValueError, match="priority would change nothing"):
        engine(scheduling="priority")


def test_logits_are_computed_of_unfinished_prompts_too():
    # lm_head takes 1 s a sequence, all else nothing: a prompt of two chunks waits for both.
    table = linear_step_table(0.0, 0.0, 0.0, 0.0)._replace(logits_s=np.array([0.0, 1.0, 2.0]))
    case = scenario([Request(0.0, 128, 1)], engine=engine(max_batched_tokens=64), step_table=table)
    assert simulate(case).last_token_s.tolist() == [2.0]


def test_the_shortest_prompt_is_admitted_first():
    limits = engine(max_running=1, scheduling="shortest_first")
    requests = [Request(0.0, 100, 1), Request(0.1, 90, 1), Request(0.2, 40, 1), Request(0.3, 40, 1)]
    output = simulate(scenario(requests, engine=limits))
    assert np.argsort(output.rows.scheduled_s).tolist() == [0, 2, 3, 1]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request(0.0, 150, 20), "exceeds_kv_capacity"),
        (Request(0.0, 250, 51), "exceeds_context"),
        (Request(0.0, 160, 1), ""),
        (Request(0.0, 150, 11), ""),
    ],
)
def test_what_can_never_fit_is_rejected_and_counted(request_, reason):
    limits = engine(max_context_tokens=300)
    output = simulate(scenario([request_, Request(1.0, 10, 1)], hbm=10, engine=limits))
    assert output.reject_reason.tolist() == [reason, ""]
    assert np.isnan(output.last_token_s[0]) == bool(reason)


def test_time_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match="not a number"):
        simulate(scenario([Request(0.0, 10, 1)], step_table=linear_step_table(float("nan"), 0.0, 0.0, 0.0)))


def test_an_engine_in_a_circle_is_an_error_not_an_endless_run():
    cluster = Cluster(scenario([Request(0.0, 10, 50)]))
    cluster._engines._engines[0].max_idle_steps = 20
    with pytest.raises(RuntimeError, match="no request completes any more"):
        cluster.run()


def test_extrapolated_time_is_told():
    table = linear_step_table(1.0, 0.01, 0.0, 0.0)._replace(profiled=np.array([64, 9, 9e9, 9e9, 9e9, 9e9]))
    output = simulate(scenario([Request(0.0, 100, 2)], step_table=table))
    assert output.instances[0].outside_s == pytest.approx(2.0)
    assert output.instances[0].step_s == pytest.approx(3.01)
