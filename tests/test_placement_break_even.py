"""Load or recompute, by hand: links, shares, chunks of a prefill, and the range in which loading wins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.hardware.base import LinkConstants
from pipeline.placement.break_even import HOPS, Setup, Way, break_even_rows, longest_run, way_of
from pipeline.predictor.prefill_time import prefix_times
from pipeline.predictor.step_table import linear_step_table

LINKS = {
    ("dram", "hbm"): LinkConstants(bandwidth_bytes_per_s=1000.0, latency_s=1.0, descriptor_s=0.25),
    ("ssd", "dram"): LinkConstants(bandwidth_bytes_per_s=1600.0, latency_s=2.0, descriptor_s=0.0),
}


def setup_of(**changes: Any) -> Setup:
    values: dict[str, Any] = {
        "tensor_parallel": 2, "block_tokens": 16, "block_bytes": 1600.0, "rank_share": 0.5, "pieces_per_block": 2,
        "max_batched_tokens": 512, "longest_tokens": 1024, "running_count": 0, "context_tokens": 0,
    }  # fmt: skip
    return Setup(**(values | changes))


def linear(setup: Setup, seconds_per_token: float) -> dict[int, Any]:
    tokens = setup.prefix_blocks * setup.block_tokens
    return {0: (tokens * seconds_per_token, tokens > 512)}


def test_a_prefix_leaves_room_for_a_block_of_prompt_and_a_token_of_output() -> None:
    assert setup_of(longest_tokens=49).prefix_blocks.tolist() == [1, 2]  # 32 + 16 + 1
    assert setup_of(longest_tokens=48).prefix_blocks.tolist() == [1]
    assert setup_of(longest_tokens=32).prefix_blocks.size == 0
    assert list(break_even_rows(LINKS, setup_of(longest_tokens=32), linear(setup_of(longest_tokens=32), 1.0))) == []


def test_a_batch_that_fills_the_step_is_left_out() -> None:
    assert setup_of(running_count=511).batches == [0, 511]
    assert setup_of(running_count=512).batches == [0]


def test_the_slowest_link_counts_and_the_latencies_of_all() -> None:
    assert way_of(HOPS["dram"], LINKS, setup_of(rank_share=1.0)).bytes_per_block == 1600.0  # a latent, on each rank
    # a rank's half block, 800 bytes in 2 pieces: 0.8 + 0.5 s a block; all of it from SSD: 1 s
    assert way_of(HOPS["dram"], LINKS, setup_of()) == Way(1.0, 800.0, 0.5, 1000.0)
    assert way_of(HOPS["ssd"], LINKS, setup_of()) == Way(3.0, 800.0, 0.5, 1000.0)
    assert way_of(HOPS["ssd"], LINKS, setup_of(rank_share=0.25)) == Way(3.0, 1600.0, 0.0, 1600.0)  # 0.4 + 0.5 s


def test_each_of_several_has_its_share_and_needs_as_much_more() -> None:
    way = way_of(HOPS["dram"], LINKS, setup_of())
    assert way.load_s(10, 1) == pytest.approx(1 + 10 * 1.3)
    assert way.load_s(10, 4) == pytest.approx(1 + 40 * 1.3)
    # 31 s for 10 blocks: (31 - 1) / 10 - 0.5 = 2.5 s to carry 800 bytes; of two 1 s; of six 0
    assert way.break_even_bytes_per_s(10, 1, 31.0) == pytest.approx(320.0)
    assert way.break_even_bytes_per_s(10, 2, 31.0) == pytest.approx(800.0)
    assert way.break_even_bytes_per_s(10, 6, 31.0) == np.inf
    assert way.break_even_bytes_per_s(10, 1, 0.5) == np.inf


def test_the_rule_of_thumb_where_times_are_linear() -> None:
    """100 bytes a token at 1,600 bytes/s against 10 tokens/s: 3 s / (0.1 - 0.0625) = 80 tokens, so one block more."""
    setup = setup_of(rank_share=0.25)
    rows = list(break_even_rows(LINKS, setup, linear(setup, 0.1), {"ssd": HOPS["ssd"]}, (1, 2)))
    alone = [row for row in rows if row["sharer_count"] == 1]
    assert [row["prefix_tokens"] for row in alone] == [96, 256, 512, 992]
    assert {(row["load_from_tokens"], row["load_to_tokens"]) for row in alone} == {(96, 992)}
    assert [row["load_s"] for row in alone] == pytest.approx([9.0, 19.0, 35.0, 65.0])
    assert [row["recompute_s"] for row in alone] == pytest.approx([9.6, 25.6, 51.2, 99.2])
    assert alone[1]["break_even_bytes_per_s"] == pytest.approx(25600 / (25.6 - 3))
    assert [row["is_extrapolated"] for row in alone] == [False, False, False, True]
    assert {row["bandwidth_bytes_per_s"] for row in rows} == {1600.0}
    shared = [row for row in rows if row["sharer_count"] == 2]  # 800 bytes/s each, less than 100 x 10
    assert {row["load_from_tokens"] for row in shared} == {None}
    assert min(row["break_even_bytes_per_s"] for row in shared) == pytest.approx(2 * 99200 / (99.2 - 3))


def test_a_length_is_given_in_whole_blocks_and_a_tier_without_links_not_at_all() -> None:
    setup = setup_of(block_tokens=100, block_bytes=1e4, longest_tokens=1001)
    links = {("dram", "hbm"): LINKS["dram", "hbm"]}
    rows = list(break_even_rows(links, setup, linear(setup, 1e-9), sharers=(1,)))
    assert [(row["tier"], row["prefix_tokens"]) for row in rows] == [("dram", n) for n in (200, 500, 900)]
    assert {row["break_even_bytes_per_s"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("wins", "run"),
    [("....", None), ("11..", (0, 1)), (".1.11", (3, 4)), ("11.11", (3, 4)), ("111.1", (0, 2)), ("1111", (0, 3))],
)
def test_the_longest_run_of_wins(wins: str, run: tuple[int, int] | None) -> None:
    assert longest_run(np.array([letter == "1" for letter in wins])) == run


def test_a_prefix_costs_the_steps_tokens_and_pairs_that_it_adds() -> None:
    """With 10 tokens to compute in any case, in chunks of 50, 100 more are two more steps and 6,050 - 1,050 pairs."""
    table = linear_step_table(fixed_s=0.01, per_token_s=1e-3, per_pair_s=1e-6, per_decode_context_s=1e-5)
    table = table._replace(logits_slope_s=1e-4)
    added_s, is_outside = prefix_times(table, np.array([20, 100]), 10, 50, 0, 0)
    assert added_s == pytest.approx([0.02 + (450 - 250) * 1e-6, 0.02 + 0.1 + 5000e-6 + 2e-4])
    assert not is_outside.any()
    # two more steps beside 2 requests over 30 tokens: their tokens, logits and context twice more
    beside_s, _ = prefix_times(table, np.array([20, 100]), 10, 50, 2, 30)
    assert beside_s - added_s == pytest.approx([0.0, 2 * (2e-3 + 2e-4 + 60e-5)])


def test_a_chunk_longer_than_the_rest_and_one_shorter() -> None:
    table = linear_step_table(fixed_s=1.0, per_token_s=0.0, per_pair_s=0.0, per_decode_context_s=0.0)
    assert prefix_times(table, np.array([16, 32, 48]), 16, 32, 0, 0)[0].tolist() == [0.0, 1.0, 1.0]
    assert prefix_times(table, np.array([16, 32, 48]), 16, 8, 0, 0)[0].tolist() == [2.0, 4.0, 6.0]


def test_what_lies_outside_the_profiled_range_is_told_and_no_time_is_negative() -> None:
    table = linear_step_table(fixed_s=1.0, per_token_s=-0.01, per_pair_s=1e-9, per_decode_context_s=0.0)
    table = table._replace(profiled=np.array([100.0, 9, 60, 60, 9, 60]))
    added_s, is_outside = prefix_times(table, np.array([40, 50, 60]), 10, 1000, 0, 0)
    assert added_s.tolist() == [0.0, 0.0, 0.0]
    assert is_outside.tolist() == [False, False, True]
