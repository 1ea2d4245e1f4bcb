"""Loading hits below HBM or computing them again, worked out by hand.

A step takes 1 s and 0.01 s for each token; a block has 16 tokens. A's four blocks are written first; B pushes the last
three of them out of HBM, which holds five; then A comes again with one block more.
"""

from __future__ import annotations

from typing import Any

import pytest
from serving_scenarios import Request, links, option, scenario

from pipeline.hardware.base import LinkConstants
from pipeline.placement.base import Placement
from pipeline.placement.state import DRAM, SSD
from pipeline.predictor.step_table import linear_step_table
from pipeline.serving.simulate import simulate

A, B = [f"a{k}" for k in range(5)], [f"b{k}" for k in range(4)]


def again(rule: str, block_s: float = 1.0, dram: int = 100, others: int = 0, **changes: Any) -> tuple[Any, float]:
    """Tokens that A hits the second time, by tier, and when its first token comes after its arrival."""
    tiers = {"load_or_recompute": rule, "deadline_s": None, "write_buffer_s": 1e9, **changes.pop("placement", {})}
    requests = [Request(0.0, 64, 1, A[:4]), Request(10.0, 64, 1, B)]
    requests += [Request(19.0, 1, 50, [])] * others
    requests.append(Request(20.0, 80, 1, A))
    case = scenario(
        requests,
        hbm=5 + others,
        dram=dram,
        placement=option("placement", "tiered", Placement, **tiers),
        links={pair: LinkConstants(64.0 / block_s, 0.0, 0.0) for pair in links()} | changes.pop("links", {}),
        **changes,
    )
    output = simulate(case)
    return output.rows.hit_tokens[-1], float(output.first_token_s[-1]) - 20.0


def test_always_load_waits_for_the_link() -> None:
    hits, after_s = again("always_load")
    assert hits.tolist() == [16, 48, 0, 0]
    assert after_s == pytest.approx(3 + 1.16)


def test_always_recompute_takes_only_what_is_in_hbm() -> None:
    hits, after_s = again("always_recompute")
    assert hits.tolist() == [16, 0, 0, 0]
    assert after_s == pytest.approx(1.64)


@pytest.mark.parametrize(("block_s", "dram_tokens", "after_s"), [(0.17, 0, 1.64), (0.15, 48, 0.45 + 1.16)])
def test_break_even_takes_the_cheaper_way(block_s: float, dram_tokens: int, after_s: float) -> None:
    # Computing three blocks again adds 0.48 s to the step; loading them takes three times block_s.
    hits, found_s = again("break_even", block_s)
    assert hits[DRAM] == dram_tokens
    assert found_s == pytest.approx(after_s)


@pytest.mark.parametrize(("delay_weight", "dram_tokens"), [(0.0, 0), (1.0, 48)])
def test_computing_again_counts_for_those_whom_it_delays(delay_weight: float, dram_tokens: int) -> None:
    # 0.6 s to load, 0.48 s to compute; twice that where the one running counts as much. It holds the sixth block.
    hits, _ = again("break_even", 0.2, others=1, placement={"delay_weight": delay_weight})
    assert hits.tolist() == [16, dram_tokens, 0, 0]


@pytest.mark.parametrize(("deadline_s", "dram_tokens"), [(2.9, 0), (3.0, 48)])
def test_a_load_that_would_be_late_is_not_begun(deadline_s: float, dram_tokens: int) -> None:
    hits, _ = again("deadline", placement={"deadline_s": deadline_s})
    assert hits[DRAM] == dram_tokens


def test_break_even_may_take_dram_and_leave_ssd() -> None:
    # DRAM holds one block, a1; a2 and a3 went on to SSD, a second each away; computing them takes 0.32 s.
    slow = {("ssd", "dram"): LinkConstants(64.0, 0.0, 0.0)}
    hits, after_s = again("break_even", 0.1, dram=1, ssd=100, links=slow)
    assert hits.tolist() == [16, 16, 0, 0]
    assert after_s == pytest.approx(0.1 + 1.48)
    hits, _ = again("break_even", 0.1, dram=1, ssd=100, links={("ssd", "dram"): LinkConstants(64.0 / 0.1, 0.0, 0.0)})
    assert hits[SSD] == 32


@pytest.mark.parametrize(("deadline_s", "dram_tokens"), [(6.9, 0), (7.0, 48)])
def test_what_a_link_has_to_do_already_counts(deadline_s: float, dram_tokens: int) -> None:
    # C's nine blocks push out all. A loads four for 4 s; B, which comes at once with it, three behind them.
    requests = [Request(0.0, 64, 1, A[:4]), Request(10.0, 64, 1, B), Request(20.0, 144, 1, [f"c{k}" for k in range(9)])]
    requests += [Request(40.0, 80, 1, A), Request(40.0, 64, 1, B)]
    rules = {"load_or_recompute": "deadline", "deadline_s": deadline_s, "write_buffer_s": 1e9}
    case = scenario(requests, hbm=9, dram=100, placement=option("placement", "tiered", Placement, **rules))
    hits = simulate(case).rows.hit_tokens
    assert hits[3].tolist() == [0, 64, 0, 0]
    assert hits[4].tolist() == [0, dram_tokens, 0, 0]


def test_split_loads_the_end_while_it_computes_the_beginning() -> None:
    # A link takes 0.9 s a block. All three by the link: 2.7 s, then 1.16 s for the last block; none: 1.64 s. Computing
    # a1 takes 1.16 s, in which a2 and a3 are nearly there; with steps that cost less, that pays.
    cheap = linear_step_table(0.1, 0.05, 0.0, 0.0)
    hits, after_s = again("always_load", 0.9, step_table=cheap)
    assert after_s == pytest.approx(2.7 + 0.1 + 16 * 0.05)
    hits, after_s = again("always_recompute", 0.9, step_table=cheap)
    assert after_s == pytest.approx(0.1 + 64 * 0.05)
    hits, after_s = again("split", 0.9, step_table=cheap)
    # a1 and a2 by computing would take 1.7 s, a3 by the link 0.9; a1 alone 0.9 s and two by the link 1.8 s.
    assert hits.tolist() == [16, 16, 0, 0]
    assert after_s == pytest.approx(1.7 + 0.1 + 16 * 0.05)
