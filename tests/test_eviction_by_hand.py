"""Each policy against traces worked by hand."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from eviction_cases import count_chain_misses, count_misses, facts_of, policy

from pipeline.eviction import calls, heaps
from pipeline.eviction.base import required
from pipeline.eviction.facts import make_facts


# Two blocks fit; the letters of the comment say which block leaves.
def test_lru_evicts_what_was_used_longest_ago() -> None:
    # 0 1 | 0 hit | 2: -1 | 1: -0 | 2 hit | 0: -1
    assert count_misses("lru", [0, 1, 0, 2, 1, 2, 0], 2) == 5


def test_fifo_evicts_what_came_first() -> None:
    # 0 1 | 0 hit | 2: -0 | 1 hit | 2 hit | 0: -1
    assert count_misses("fifo", [0, 1, 0, 2, 1, 2, 0], 2) == 4


def test_lfu_evicts_what_was_used_least_and_among_equals_what_got_there_first() -> None:
    # 0 0 (hit) 1 | 2: -1 (1 use against 2) | 1: -2 | 1 hit, so 0 and 1 have two uses, 0 since longer | 3: -0 | 1 hit
    assert count_misses("lfu", [0, 0, 1, 2, 1, 1, 3, 1], 2) == 5
    # as above but 0 is used a third time: then 3 pushes 1 out, and 1 misses
    assert count_misses("lfu", [0, 0, 0, 1, 2, 1, 1, 3, 1], 2) == 6


def test_lfu_forgets_the_count_of_a_block_that_left() -> None:
    # 0 used 3 times, 1 used 4 times | 2: -0 | 0 comes back with one use: -2 | 2: -0
    assert count_misses("lfu", [0, 0, 0, 1, 1, 1, 1, 2, 0, 2], 2) == 5


def test_sieve_spares_what_was_visited_and_does_not_move_it() -> None:
    # three fit: 0 1 2, 0 hit | 3: hand clears 0, -1, stops at 2 | 4: -2 | 0 hit | 1: hand at 3: -3
    # | 5: hand at 4: -4 | 0 hit
    assert count_misses("sieve", [0, 1, 2, 0, 3, 4, 0, 1, 5, 0], 3) == 7


def test_s3fifo_hand_worked() -> None:
    # Ten fit: 0 goes to small, 1..9 to main as small is full. 10: -0 (ghost). 0: ghost, so to main; small is evicted:
    # -10. 1 hit. 11: main is over its nine: 1 goes round, -2. 2 was never a ghost: small is evicted: -11. 1 hit.
    assert count_misses("s3fifo", [*range(10), 10, 0, 1, 11, 2, 1], 10) == 14


def test_s3fifo_promotes_what_small_saw_twice_more() -> None:
    # Full with 0..9; 10: -0; 10 is hit twice; 11: 10 goes to main, which is over: -1; 10 hit; 12: -11 from small
    assert count_misses("s3fifo", [*range(10), 10, 10, 10, 11, 10, 12, 10], 10) == 13


def test_slru_lifts_what_was_used_and_lets_the_oldest_of_a_full_segment_sink() -> None:
    # Four fit, two each: 0 1 below, 2 3 above, as there is room | 0 hit: up, so 2 sinks | 4: -1 | 1: -2 | 3 hit
    # | 2: -4 | 0 hit
    assert count_misses("slru", [0, 1, 2, 3, 0, 4, 1, 3, 2, 0], 4) == 7


def test_arc_gives_room_to_the_kind_whose_ghosts_come_back() -> None:
    # 0 used again | 1 | 2: -1 (more than no room for those used once) | 1: -2; a ghost, so room for one | 3: -0, for
    # those used once are none | 1 hit | 2: -1; a ghost, so room for two | 3 hit | 0: -2; a ghost of those used again,
    # so room for one | 3 hit
    assert count_misses("arc", [0, 0, 1, 2, 1, 3, 1, 2, 3, 0, 3], 2) == 7


def test_arc_survives_a_scan() -> None:
    # 0 and 1 are used again, then 2..7 pass through the one place left | 0 1 hit
    assert count_misses("arc", [0, 1, 0, 1, *range(2, 8), 0, 1], 3) == 8
    assert count_misses("lru", [0, 1, 0, 1, *range(2, 8), 0, 1], 3) == 10


def test_random_takes_each_block_that_nobody_uses_equally_often_and_repeats_itself() -> None:
    drawn = []
    for _ in range(2):
        functions, a, pins = policy("random").functions(), policy("random").state(6, 6), np.zeros(6, np.int32)
        for block in range(6):
            calls.insert(functions, a, block, 0.0)
        pins[2] = 1
        victims = []
        for _ in range(5000):
            victims.append(calls.victim(functions, a, pins, 0.0))
            calls.insert(functions, a, victims[-1], 0.0)
        drawn.append(victims)
    assert drawn[0] == drawn[1]
    counts = Counter(drawn[0])
    assert set(counts) == {0, 1, 3, 4, 5}
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 18.5  # chi-squared, p = 0.001
    pairs = Counter(zip(drawn[0], drawn[0][1:], strict=False))
    assert len(pairs) == 25
    assert max(pairs.values()) < 270  # 200 on average, five deviations


def test_another_seed_draws_other_blocks() -> None:
    accesses = np.random.default_rng(0).integers(0, 50, 2000).tolist()
    assert len({count_misses("random", accesses, 20, seed=seed) for seed in range(8)}) > 3


def test_belady_evicts_what_is_needed_last() -> None:
    # 0 1 | 2: -1 (next at 4, 0 at 3) | 0 hit | 1: -0 (next at 6, 2 at 5) | 2 hit | 0
    assert count_misses("belady", [0, 1, 2, 0, 1, 2, 0], 2) == 5


def test_belady_waits_for_a_use_that_is_late_but_not_for_one_that_went_elsewhere() -> None:
    facts = facts_of([(0.0, [0, 1]), (10.0, [0]), (15.0, [2]), (50.0, [1])], 3)

    def victim_at(time_s: float) -> int:
        functions, a = policy("belady").functions(), policy("belady").state(3, 2, facts)
        calls.insert(functions, a, 0, 0.0)
        calls.insert(functions, a, 1, 0.0)
        return calls.victim(functions, a, np.zeros(3, np.int32), time_s)

    assert victim_at(15.0) == 1  # 0 was due at 10: it stands in a queue
    assert victim_at(40.0) == 1
    assert victim_at(41.0) == 0  # 30 s are over


def test_belady_takes_up_one_use_at_a_time() -> None:
    # Three requests for 0 come together; once each, it is no longer needed, but 1 is.
    facts = facts_of([(0.0, [0]), (0.0, [0]), (0.0, [0]), (5.0, [1])], 2)
    functions, pins = policy("belady").functions(), np.zeros(2, np.int32)
    for uses, victim in ((2, 1), (3, 0)):
        a = policy("belady").state(2, 2, facts)
        calls.insert(functions, a, 1, 0.0)
        calls.insert(functions, a, 0, 0.0)
        for _ in range(uses - 1):
            calls.touch(functions, a, 0, 0.0)
        assert calls.victim(functions, a, pins, 1.0) == victim


def test_leaf_aware_lru_keeps_what_is_followed() -> None:
    chains = [[0, 1, 2], [3], [0, 1], [4], [0, 1]]
    # 0 1 2 | 3: -2, the end | 0 1 hit | 4: -3 (1 is an end too, but used since) | 0 1 hit
    assert count_chain_misses("leaf_aware_lru", chains, 3) == 5
    # 0 1 2 | 3: -0 | 0: -1 | 1: -2 | 4: -3 | 0 1 hit
    assert count_chain_misses("lru", chains, 3) == 7


def test_leaf_aware_lru_takes_a_block_that_is_followed_if_there_is_no_other() -> None:
    facts = facts_of([(0.0, [0, 1, 2]), (0.0, [3])], 4)
    functions, a = policy("leaf_aware_lru").functions(), policy("leaf_aware_lru").state(4, 4, facts)
    for block in (3, 0, 1, 2):
        calls.insert(functions, a, block, 0.0)
    pins = np.array([0, 0, 1, 0], np.int32)
    assert [calls.victim(functions, a, pins, 0.0) for _ in range(4)] == [3, 0, 1, -1]
    calls.release(functions, a, 2, 0.0)
    calls.insert(functions, a, 1, 0.0)
    assert [calls.victim(functions, a, 0 * pins, 0.0) for _ in range(3)] == [2, 1, -1]


def test_predicted_reuse_evicts_what_was_used_longest_ago() -> None:
    assert count_misses("predicted_reuse", [0, 1, 0, 2, 1, 2, 0], 2) == 5


def test_ewma_evicts_what_is_predicted_latest() -> None:
    # A gap of 4 until there is another. 0 1, due at 4 and 5 | 2: -1 | 0 hit: gap 3, due at 6 | 1: -2 (due at 6 too,
    # used longer ago); its gap 3, due at 7 | 0 hit: gap 0.3 * 2 + 0.7 * 3 = 2.7, due at 7.7 | 2: -0 | 1 hit
    assert count_misses("ewma", [0, 1, 2, 0, 1, 0, 2, 1], 2, horizon_s=4.0) == 5


def test_ewma_gives_an_overdue_block_as_long_again_as_it_is_late() -> None:
    # Three fit. 0: gap 1, due at 2; 1: gap 2, due at 6; 2: gap 2, due at 7 | 3 at 6: 0 is 4 late, so expected at 10: -0
    # | 2 hit. With a ratio of 0 it is expected at once: -2 | 2.
    accesses = [0, 0, 1, 2, 1, 2, 3, 2]
    assert count_misses("ewma", accesses, 3) == 4
    assert count_misses("ewma", accesses, 3, overdue_ratio=0.0) == 5


def test_lmcache_cost_aware_keeps_what_much_follows_until_it_is_old() -> None:
    chains = [[0, 1, 2], [3], [4], [0, 1], [2]]
    # Costs 3 2 1 | 3: -2 | 4: -3 | 0 1 hit | 2: -4
    assert count_chain_misses("lmcache_cost_aware", chains, 3, half_life_s=1e9) == 6
    # Scores 3/4 2/3 1/2 | 3: -2 | 4: 3/5 2/4 1/2: -1, older than 3 | 0 hit | 1: 3/2 1/4 1/3: -3, back at a cost of 1
    # | 2: 3/3 1/4 1/2: -4
    assert count_chain_misses("lmcache_cost_aware", chains, 3, half_life_s=1.0) == 7


def test_lmcache_cost_aware_breaks_a_tie_with_the_oldest_of_all_by_age() -> None:
    facts = facts_of([(0.0, [0, 1]), (0.0, [2]), (0.0, [3])], 4)
    functions, pins = policy("lmcache_cost_aware").functions(), np.zeros(4, np.int32)
    a = policy("lmcache_cost_aware", half_life_s=2.0).state(4, 4, facts)
    calls.insert(functions, a, 0, 0.0)
    calls.insert(functions, a, 2, 0.0)
    assert calls.victim(functions, a, pins, 1.0) == 2
    calls.insert(functions, a, 3, 3.0)
    assert calls.victim(functions, a, pins, 4.0) == 0  # 2 / (1 + 4/2) = 1 / (1 + 1/2)


def test_facts_tell_chains_by_block() -> None:
    facts = make_facts(np.array([0, 1, 2, 0, 1, 3, 3]), np.array([0, 3, 3, 6, 7]), np.array([0.0] * 3 + [5.0] * 4), 5)
    assert facts.parent.tolist() == [-1, 0, 1, 1, -1]
    assert facts.use_offset.tolist() == [0, 2, 4, 5, 7, 7]
    assert facts.use_s.tolist() == [0.0, 5.0, 0.0, 5.0, 0.0, 5.0, 5.0]
    assert facts.tail_blocks.tolist() == [3, 3, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("name", ["belady", "leaf_aware_lru", "lmcache_cost_aware"])
def test_a_policy_that_needs_facts_says_so(name: str) -> None:
    with pytest.raises(ValueError, match="facts: given none, expected facts of 3 blocks"):
        policy(name).state(3, 3)
    with pytest.raises(ValueError, match="facts: given facts of 2 blocks, expected facts of 3"):
        required(facts_of([(0.0, [0, 1])], 2), 3)


@pytest.mark.parametrize("name", ["belady", "leaf_aware_lru", "lmcache_cost_aware"])
def test_a_trace_of_no_chains_has_facts(name: str) -> None:
    functions, a = policy(name).functions(), policy(name).state(0, 0, facts_of([], 0))
    assert calls.victim(functions, a, np.zeros(0, np.int32), 0.0) == -1


def test_heaps_give_blocks_by_key_and_then_by_ticket() -> None:
    draw = random.Random(1)
    for _ in range(200):
        a, inside, ticket = heaps.allocate_heaps(40, 2), dict[int, tuple[float, int]](), 0
        for _ in range(150):
            block, key = draw.randrange(40), float(draw.randrange(25))
            if draw.random() < 0.4:
                heaps.take_out(a, 0, block)
                heaps.take_out(a, 1, block)
                inside.pop(block, None)
            else:
                ticket += 1
                heaps.new_ticket(a, block)
                heaps.put(a, 0, block, key)
                heaps.put(a, 1, block, -key)
                inside[block] = key, ticket
        order = [sorted(inside, key=lambda b: (sign * inside[b][0], inside[b][1])) for sign in (1, -1)]
        pins = np.zeros(40, np.int32)
        assert [[heaps.pop_first_free(a, h, pins) for _ in inside] for h in (0, 1)] == order
