"""The prefix index against a plain ordered dictionary per instance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_reference import Held

from pipeline.routing import prefix_index
from pipeline.routing.prefix_index import PrefixIndex


def chain(*blocks):
    return np.array(blocks, np.int64)


class Index:
    """The compiled index, asked as plain Python."""

    def __init__(self, capacity_blocks, block_tokens, block_count):
        self.made = PrefixIndex(np.array(capacity_blocks), block_tokens, block_count)
        self.count = len(capacity_blocks)

    def record(self, index, block_ids):
        prefix_index.record(self.made.address, index, block_ids)

    def matched_tokens(self, block_ids, input_tokens):
        out = np.full(self.count, -1)
        prefix_index.match(self.made.address, block_ids, input_tokens, out)
        return out


def test_the_leading_run_is_matched_in_whole_blocks():
    index = Index([8, 8, 8], 16, 20)
    index.record(0, chain(1, 2, 3))
    index.record(1, chain(1, 2))
    index.record(2, chain(2, 3))
    assert index.matched_tokens(chain(1, 2, 3, 4), 70).tolist() == [48, 32, 0]
    assert index.matched_tokens(chain(2, 3), 70).tolist() == [32, 16, 32]
    assert index.matched_tokens(chain(), 70).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("input_tokens", "matched"), [(1, 0), (16, 0), (17, 16), (48, 32), (49, 48), (60, 48)])
def test_the_last_token_is_always_computed(input_tokens, matched):
    index = Index([8], 16, 20)
    index.record(0, chain(1, 2, 3))
    assert index.matched_tokens(chain(1, 2, 3)[: input_tokens // 16], input_tokens).tolist() == [matched]


def test_the_end_of_the_oldest_chain_is_forgotten_first():
    index = Index([4], 1, 20)
    index.record(0, chain(1, 2, 3))
    index.record(0, chain(4, 5))  # full at 4: block 3 goes
    assert index.matched_tokens(chain(1, 2, 3), 100).tolist() == [2]
    index.record(0, chain(1))  # touched: 2 is now the oldest
    index.record(0, chain(6))
    assert index.matched_tokens(chain(1, 2), 100).tolist() == [1]
    assert index.matched_tokens(chain(4, 5), 100).tolist() == [2]


def test_a_chain_longer_than_the_capacity_keeps_its_start():
    index = Index([3, 0], 1, 20)
    index.record(0, chain(1, 2, 3, 4, 5))
    index.record(1, chain(1, 2))  # no room for a block at all
    assert index.matched_tokens(chain(1, 2, 3, 4, 5), 100).tolist() == [3, 0]


def test_without_prefixes_nothing_matches():
    index = Index([100, 100], 16, 0)
    index.record(0, chain())
    assert index.matched_tokens(chain(), 500).tolist() == [0, 0]


def test_an_unknown_block_is_an_error():
    index = Index([4], 16, 20)
    for block in (-1, 20, 2**40):
        with pytest.raises(ValueError, match=r"not in 0\.\.block_count-1"):
            index.record(0, chain(block))
        with pytest.raises(ValueError, match=r"not in 0\.\.block_count-1"):
            index.matched_tokens(chain(block), 100)


@settings(max_examples=150, deadline=None)
@given(
    capacity=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    sends=st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 29), max_size=9)), max_size=40),
    probe=st.lists(st.integers(0, 29), max_size=9),
)
def test_it_equals_plain_dictionaries_whatever_is_sent(capacity, sends, probe):
    index, plain = Index(capacity, 1, 30), Held(capacity)
    for where, blocks in sends:
        where %= len(capacity)
        index.record(where, chain(*blocks))
        plain.record(where, blocks)
        for block in range(30):
            assert index.matched_tokens(chain(block), 100).tolist() == plain.leading_run([block])
    assert index.matched_tokens(chain(*probe), 100).tolist() == plain.leading_run(probe)


def test_it_equals_plain_dictionaries_at_256_instances():
    draws = np.random.default_rng(5)
    capacity = draws.integers(0, 200, 256)
    index, plain = Index(capacity, 1, 5000), Held(capacity.tolist())
    chains = []
    for _ in range(4000):
        root = chains[draws.integers(len(chains))] if chains and draws.random() < 0.6 else []
        blocks = [*root[: draws.integers(0, 30)], *draws.integers(0, 5000, draws.integers(1, 20)).tolist()]
        chains.append(blocks)
        where = int(draws.integers(256)) if draws.random() < 0.7 else int(draws.integers(3))
        index.record(where, chain(*blocks))
        plain.record(where, blocks)
    for blocks in chains[-400:]:
        assert index.matched_tokens(chain(*blocks), 10_000).tolist() == plain.leading_run(blocks)
