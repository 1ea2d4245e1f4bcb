"""The trace card: figures by hand, reuse against a plain LRU, and the verdict that a user reads first."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace_shaping import trace_of
from test_warehouse_page import charts_of

from pipeline.trace.card import TIME_BINS, describe, session_tokens
from pipeline.trace.card_page import page_of
from pipeline.trace.card_words import capacity, lines, verdict
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.reuse import hit_ratio_curve, reuse_distances

NAN = float("nan")


def example() -> RequestTrace:
    """Blocks of 4 tokens; prompts of 8 and 12 tokens, the last request's third block is of its output."""
    return trace_of(
        [0, 10, 20, 60],
        sessions=[0, 1, 0, 1],
        inputs=[8, 8, 12, 8],
        chains=[[0, 1], [2, 3], [0, 1, 4], [2, 3, 5]],
    )


def lru_hits(look_ups: list[int], capacity: int) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in look_ups:
        hits += block in held
        held.pop(block, None)
        held[block] = None
        if len(held) > capacity:
            held.popitem(last=False)
    return hits


def test_reuse_distances_by_hand() -> None:
    # Look-ups: 0 1 | 2 3 | 0 1 4 | 2 3; the block of an output is none.
    assert reuse_distances(example()).tolist() == [-1, -1, -1, -1, 3, 3, -1, 4, 4]
    curve = hit_ratio_curve(reuse_distances(example()), np.array([3, 4, 5]))
    assert curve.tolist() == [0, 2 / 9, 4 / 9]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 12), max_size=80), st.integers(1, 14))
def test_the_curve_is_that_of_a_plain_lru(look_ups: list[int], capacity: int) -> None:
    numbers = {block: i for i, block in enumerate(dict.fromkeys(look_ups))}
    blocks = [numbers[block] for block in look_ups]
    trace = trace_of([0], inputs=[max(4 * len(blocks), 1)], chains=[blocks])
    hits = hit_ratio_curve(reuse_distances(trace), np.array([capacity]))[0] * max(len(blocks), 1)
    assert hits == pytest.approx(lru_hits(blocks, capacity))


def test_figures_by_hand() -> None:
    card = describe(example(), {"hbm": 4, "dram": 1}, profiled_tokens=10)
    assert (card.request_count, card.session_count, card.duration_s) == (4, 2, 60)
    assert (card.rate_per_s, card.input_tokens, card.output_tokens) == (4 / 60, 36, 4)
    assert card.peak_rate_ratio == pytest.approx(3 / 60 / (4 / 60))
    assert card.classes == {"a": 2, "b": 2}
    assert card.unique_tokens == 24
    # Of 36 prompt tokens, 8 of the third request and 4 of the fourth (its last token is always computed) come again.
    assert card.infinite_cache_hit_ratio == pytest.approx(12 / 36)
    assert [(t.tier, t.tokens, t.hit_ratio) for t in card.tiers] == [("hbm", 16, 2 / 9), ("dram", 20, 4 / 9)]
    assert (card.long_ratio, card.long_tokens_ratio) == (1 / 4, 12 / 36)
    assert card.quantiles["gap_in_session_s"] == pytest.approx((23, 35, 47, 49.7, 50))
    assert card.quantiles["requests_per_session_count"] == (2, 2, 2, 2, 2)
    assert card.bins.arrivals_per_s.sum() * 60 / TIME_BINS == pytest.approx(4)
    assert card.bins.working_set_tokens[[0, 10, 20, 59]].tolist() == [8, 8, 12, 12]
    assert card.bins.seen_tokens[[0, 10, 20, 59]].tolist() == [8, 16, 20, 24]
    assert card.curve_hit_ratio[-1] == pytest.approx(4 / 9)


def test_think_times_stand_in_the_place_of_gaps_where_they_are_known() -> None:
    card = describe(replace(example(), think_s=np.array([NAN, NAN, 7, 9])), {"hbm": 1}, 10)
    assert card.closed_loop_ratio == 0.5
    assert "gap_in_session_s" not in card.quantiles
    assert card.quantiles["think_s"][1] == 8


def test_what_tiers_hold_is_told_per_instance_rank_and_node() -> None:
    tier = {"tier": "dram", "tokens": 488_000, "session_count": 61.03, "capacity_bytes": 64e9}
    assert capacity(tier | {"rank_bytes": 32e9, "node_bytes": 256e9}) == (
        "dram: 488k tokens, 61 of its sessions at their longest; 64 GB an instance, 32 GB a rank, 256 GB a node"
    )
    assert session_tokens(example()) == 11  # sessions of 9 and 13 tokens, and of 9 twice


def test_the_verdict_says_whether_a_tier_can_pay() -> None:
    trace = example()
    pays = verdict(describe(trace, {"hbm": 4, "dram": 1}, 10))
    assert "a tier below hbm can pay: hbm alone finds 22.2% of the blocks, dram adds 22.2%" in pays
    assert "33.3% of the prompt tokens" in pays
    assert "tiers below it add 0.0%" in verdict(describe(trace, {"hbm": 6, "dram": 9}, 10))
    fresh = trace_of([0, 1], chains=[[0, 1], [2, 3]])
    assert "no cache can pay" in verdict(describe(fresh, {"hbm": 1}, 10))
    unknown = replace(trace_of([0, 1]), has_prefixes=False)
    assert "nothing can be said of caching" in verdict(describe(unknown, {"hbm": 1}, 10))


@pytest.mark.parametrize(
    "trace",
    [
        example(),
        trace_of([0]),
        trace_of([0, 0]),
        replace(trace_of([0, 1]), has_prefixes=False),
        replace(example(), think_s=np.array([NAN, NAN, 7, 9])),
    ],
)
def test_every_trace_has_a_card_in_words_and_as_a_page(trace: RequestTrace) -> None:
    card = describe(trace, {"hbm": 4, "ssd": 9}, 10)
    assert all("nan" not in line and "\n" not in line for line in lines(card))
    page = page_of(card, [{"reason": "<b>kept</b>", "row_count": 4, "first_rows": "[1]"}], [])
    assert "&lt;b&gt;kept" in page
    assert len(charts_of(page)) == (3 if trace.has_prefixes else 1)
    json.dumps(asdict(card), default=lambda array: array.tolist(), allow_nan=True)
