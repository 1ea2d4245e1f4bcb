"""What holds of every policy, each against a plain Python model under random operations."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
import yaml
from eviction_cases import CONF, NAMES, count_misses, facts_of, policy, some_chains
from eviction_models import make_model
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_stacks import BLOCKS, option, residents

from pipeline.eviction import calls
from pipeline.eviction.base import EvictionPolicy
from pipeline.eviction.replay import misses
from pipeline.placement.base import Placement
from pipeline.placement.replay import misses as chain_misses
from pipeline.placement.state import make_stack
from pipeline.spec import InputError, build


def test_every_policy_file_has_an_option_and_a_model() -> None:
    assert sorted(path.stem for path in CONF.glob("*.yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_one_block_and_everything_fitting(name: str) -> None:
    assert count_misses(name, [0, 0, 1, 1, 0], 1) == 3
    assert count_misses(name, [0, 1, 2, 0, 1, 2, 2], 3) == 3


@pytest.mark.parametrize("name", NAMES)
def test_no_victim_when_all_are_in_use_and_all_come_back_on_release(name: str) -> None:
    facts = facts_of([(0.0, [0, 1, 2, 3])], 4)
    functions, a = policy(name).functions(), policy(name).state(4, 4, facts)
    pins = np.ones(4, np.int32)
    for block in range(4):
        calls.insert(functions, a, block, 0.0)
    assert [calls.victim(functions, a, pins, 1.0) for _ in range(2)] == [-1, -1]
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
    chains = some_chains(draw, blocks)
    facts = facts_of(chains, blocks)
    functions, a = policy(name).functions(), policy(name).state(blocks, capacity, facts)
    model = make_model(name, capacity, chains)
    pins, resident = np.zeros(blocks, np.int32), set[int]()
    for step in range(300):
        model.now_s = step // 2 * 1.0
        block = draw.randrange(blocks)
        users = dict(enumerate(pins.tolist()))
        if block not in resident:
            if len(resident) == capacity:
                out = calls.victim(functions, a, pins, step // 2 * 1.0)
                assert out == model.victim(users)
                assert (out == -1) == all(pins[b] > 0 for b in resident)
                if out == -1:
                    continue
                resident.remove(out)
            calls.insert(functions, a, block, step // 2 * 1.0)
            model.insert(block)
            resident.add(block)
        elif pins[block] > 0 and draw.random() > busy:
            pins[block] -= 1
            if pins[block] == 0:
                calls.release(functions, a, block, step // 2 * 1.0)
                model.release(block)
        elif pins[block] == 0 and draw.random() < 0.1:
            calls.remove(functions, a, block)
            model.remove(block)
            resident.remove(block)
        else:
            calls.touch(functions, a, block, step // 2 * 1.0)
            model.touch(block)
            pins[block] += draw.random() < busy


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), capacity=st.integers(1, 20))
def test_miss_counts_are_those_of_the_plain_model(name: str, seed: int, capacity: int) -> None:
    draw = random.Random(seed)
    accesses = [min(int(draw.expovariate(0.1)), 60) for _ in range(400)]  # some blocks are far more popular
    model = make_model(name, capacity, [(float(i), [block]) for i, block in enumerate(accesses)])
    resident, missed = set[int](), 0
    for i, block in enumerate(accesses):
        model.now_s = float(i)
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


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 30), gap_s=st.floats(0, 1e6))
def test_predicted_reuse_leaves_the_event_log_of_lru(seed: int, gap_s: float) -> None:
    draw = random.Random(seed)
    chains = some_chains(draw, BLOCKS)
    ids, offset = np.array([b for _, chain in chains for b in chain]), np.cumsum([0, *(len(c) for _, c in chains)])
    logs = []
    for eviction in (policy("lru"), policy("predicted_reuse", gap_s=gap_s)):
        stack, policies = make_stack(BLOCKS, np.array([6, 4, 5, 0]), eviction, option("placement", "tiered", Placement))
        log = hashlib.sha256()
        for i in range(offset.size - 1):
            empty = np.full(i // 2, offset[i])  # so many empty requests before it: the time is their number
            chain_misses(stack, policies, ids, np.concatenate((empty, offset[i : i + 2])), True)
            log.update(str(residents(policies)).encode() + stack.moved_blocks.tobytes() + stack.hit_blocks.tobytes())
        logs.append(log.hexdigest())
    assert logs[0] == logs[1]
