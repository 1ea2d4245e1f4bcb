"""Each policy against a hand-worked trace, a plain Python model under random operations, and real traces."""

from __future__ import annotations

import csv
import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from eviction_models import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.eviction import calls
from pipeline.eviction.base import EvictionPolicy
from pipeline.eviction.replay import misses
from pipeline.spec import InputError, build

CONF = Path(__file__).resolve().parents[1] / "conf" / "eviction"
NAMES = sorted(MODELS)


@cache
def policy(name: str) -> EvictionPolicy:
    return build(yaml.safe_load((CONF / f"{name}.yaml").read_text()), "eviction", EvictionPolicy)


def count_misses(name: str, accesses: list[int], capacity: int) -> int:
    return misses(policy(name), np.array(accesses, np.int64), max(accesses) + 1, capacity)


def test_every_policy_file_has_an_option_and_a_model() -> None:
    assert sorted(path.stem for path in CONF.glob("*.yaml")) == NAMES


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


@pytest.mark.parametrize("name", NAMES)
def test_one_block_and_everything_fitting(name: str) -> None:
    assert count_misses(name, [0, 0, 1, 1, 0], 1) == 3
    assert count_misses(name, [0, 1, 2, 0, 1, 2, 2], 3) == 3


@pytest.mark.parametrize("name", NAMES)
def test_no_victim_when_all_are_in_use_and_all_come_back_on_release(name: str) -> None:
    functions, a = policy(name).functions(), policy(name).state(4, 4)
    pins = np.ones(4, np.int32)
    for block in range(4):
        calls.insert(functions, a, block, 0.0)
    assert calls.victim(functions, a, pins, 1.0) == -1
    for block in (2, 0, 3, 1):
        pins[block] = 0
        calls.release(functions, a, block, 2.0)
    assert sorted(calls.victim(functions, a, pins, 3.0) for _ in range(4)) == [0, 1, 2, 3]
    assert calls.victim(functions, a, pins, 3.0) == -1


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 30), capacity=st.integers(1, 9), busy=st.floats(0, 1))
def test_random_operations_do_what_the_plain_model_does(name: str, seed: int, capacity: int, busy: float) -> None:
    draw = random.Random(seed)
    blocks = capacity + 4
    functions, a, model = policy(name).functions(), policy(name).state(blocks, capacity), MODELS[name](capacity)
    pins, resident = np.zeros(blocks, np.int32), set[int]()
    for step in range(300):
        block = draw.randrange(blocks)
        users = dict(enumerate(pins.tolist()))
        if block not in resident:
            if len(resident) == capacity:
                out = calls.victim(functions, a, pins, float(step))
                assert out == model.victim(users)
                assert (out == -1) == all(pins[b] > 0 for b in resident)
                if out == -1:
                    continue
                resident.remove(out)
            calls.insert(functions, a, block, float(step))
            model.insert(block)
            resident.add(block)
        elif pins[block] > 0 and draw.random() > busy:
            pins[block] -= 1
            if pins[block] == 0:
                calls.release(functions, a, block, float(step))
                model.release(block)
        elif pins[block] == 0 and draw.random() < 0.1:
            calls.remove(functions, a, block)
            model.remove(block)
            resident.remove(block)
        else:
            calls.touch(functions, a, block, float(step))
            model.touch(block)
            pins[block] += draw.random() < busy


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), capacity=st.integers(1, 20))
def test_miss_counts_are_those_of_the_plain_model(name: str, seed: int, capacity: int) -> None:
    draw = random.Random(seed)
    accesses = [min(int(draw.expovariate(0.1)), 60) for _ in range(400)]  # some blocks are far more popular
    model, resident, missed = MODELS[name](capacity), set[int](), 0
    for block in accesses:
        if block in resident:
            model.touch(block)
            continue
        missed += 1
        if len(resident) == capacity:
            resident.remove(model.victim({}))
        model.insert(block)
        resident.add(block)
    assert count_misses(name, accesses, capacity) == missed


@settings(max_examples=60, deadline=None)
@given(accesses=st.lists(st.integers(0, 9), min_size=2, max_size=60), capacity=st.integers(2, 6))
def test_lru_never_evicts_what_was_just_admitted(accesses: list[int], capacity: int) -> None:
    functions, a, pins = policy("lru").functions(), policy("lru").state(10, capacity), np.zeros(10, np.int32)
    resident, last = set[int](), -1
    for block in accesses:
        if block in resident:
            calls.touch(functions, a, block, 0.0)
            last = -1
            continue
        if len(resident) == capacity:
            out = calls.victim(functions, a, pins, 0.0)
            assert out != last
            resident.remove(out)
        calls.insert(functions, a, block, 0.0)
        resident.add(block)
        last = block


def test_a_policy_refuses_a_parameter_out_of_range_or_misspelt() -> None:
    values = yaml.safe_load((CONF / "s3fifo.yaml").read_text())
    with pytest.raises(InputError, match=r"eviction.small_ratio: given 1.5"):
        build({**values, "small_ratio": 1.5}, "eviction", EvictionPolicy)
    with pytest.raises(InputError, match=r"eviction.smal_ratio: unknown key; allowed: ghost_ratio"):
        build({**values, "smal_ratio": 0.1}, "eviction", EvictionPolicy)


@pytest.mark.parametrize(("accesses", "capacity"), [([0, 5], 2), ([-1], 2), ([0], 0)])
def test_replay_refuses_what_it_cannot_count(accesses: list[int], capacity: int) -> None:
    with pytest.raises(InputError, match="given"):
        misses(policy("lru"), np.array(accesses, np.int64), 5, capacity)


@cache
def accesses_of(path: Path) -> tuple[Any, int]:
    with gzip.open(path) as lines:
        ids = [block for line in lines for block in json.loads(line)["hash_ids"]]
    unique, numbered = np.unique(np.array(ids), return_inverse=True)
    return numbered.astype(np.int64), unique.size


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_miss_ratios_on_real_traces_are_those_of_libcachesim(name: str, data: Path) -> None:
    compared = 0
    with (data / "reference" / "reference_hit_ratios.csv").open() as file:
        for row in csv.DictReader(file):
            if row["policy"].lower() == name:
                accesses, count = accesses_of(data / "traces" / f"mooncake_{row['trace']}.jsonl.gz")
                missed = misses(policy(name), accesses, count, int(row["cache_blocks"]))
                assert f"{missed / accesses.size:.6f}" == row["miss_ratio"], row
                compared += 1
    assert compared == 10
