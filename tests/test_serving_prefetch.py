"""Prefetching, worked out by hand.

A step takes 1 s and 0.01 s for each token; a block of 16 tokens crosses a link in 1 s. A's four blocks are computed
first; B pushes the last three of them out of HBM, which holds nine; then A's session comes again with one block more.
"""

from __future__ import annotations

from typing import Any

import pytest
from serving_scenarios import NAN, Request, option, scenario

from pipeline.placement.base import CAUSES
from pipeline.placement.prefetch import Prefetcher
from pipeline.serving.simulate import simulate

A, B = [f"a{k}" for k in range(5)], [f"b{k}" for k in range(8)]
HBM, DRAM = 0, 1
PREFETCH = CAUSES.index("prefetch")


def again(prefetcher: str, at_s: float = 40.0, think_s: float = NAN, **changes: Any) -> Any:
    requests = [
        Request(0.0, 64, 1, A[:4], session=0),
        Request(10.0, 128, 1, B, session=1),
        Request(at_s, 80, 1, A, session=0, think_s=think_s),
    ]
    return simulate(scenario(requests, hbm=9, dram=100, prefetch=option("prefetch", prefetcher, Prefetcher, **changes)))


def test_an_oracle_fetches_so_long_before() -> None:
    output = again("oracle", lead_s=3.0)
    assert output.rows.hit_tokens[2].tolist() == [64, 0, 0, 0]
    assert output.first_token_s[2] == pytest.approx(40 + 1.16)
    assert output.accounts[0, DRAM, HBM, PREFETCH].tolist() == [3.0, 3.0, 0.0], "blocks, busy, wait"
    assert output.instances[0].hit_blocks.tolist() == [4, 0, 0, 0], "what was fetched is a hit in HBM, once"


def test_who_comes_while_blocks_are_on_their_way_waits_for_them() -> None:
    output = again("oracle", lead_s=1.0)
    assert output.first_token_s[2] == pytest.approx(42 + 1.16)
    assert output.rows.loading_s[2] == pytest.approx(2.0)


def test_or_takes_what_is_there_and_computes_the_rest() -> None:
    output = again("oracle", lead_s=1.0, mode="best_effort")
    assert output.rows.hit_tokens[2].tolist() == [16, 0, 0, 0]
    assert output.first_token_s[2] == pytest.approx(40 + 1.64)


@pytest.mark.parametrize(("timeout_s", "first_s"), [(1.9, 40 + 1.64), (2.0, 42 + 1.16)])
def test_or_waits_for_what_is_due_in_time(timeout_s: float, first_s: float) -> None:
    output = again("oracle", lead_s=1.0, mode="timeout", timeout_s=timeout_s)
    assert output.first_token_s[2] == pytest.approx(first_s)


def test_an_oracle_knows_how_long_a_user_thinks() -> None:
    output = again("oracle", lead_s=3.0, at_s=0.0, think_s=30.0)  # A ends at 1.64 and comes again at 31.64
    assert output.arrival_s[2] == pytest.approx(31.64)
    assert output.rows.hit_tokens[2].tolist() == [64, 0, 0, 0]
    assert output.first_token_s[2] == pytest.approx(31.64 + 1.16)


def test_what_waits_in_the_queue_is_fetched_meanwhile() -> None:
    # C computes from 20 to 31 s; A comes at 25 and waits until then, and its blocks come up in 3 s.
    requests = [
        Request(0.0, 64, 1, A[:4]),
        Request(10.0, 128, 1, B),
        Request(20.0, 1000, 1, []),
        Request(25.0, 80, 1, A),
    ]
    outputs = {
        name: simulate(scenario(requests, hbm=70, dram=100, prefetch=option("prefetch", name, Prefetcher)))
        for name in ("none", "queue_aware")
    }
    assert all(output.rows.hit_tokens[3].sum() == 64 for output in outputs.values())
    assert outputs["queue_aware"].first_token_s[3] == pytest.approx(20 + 11 + 1.16)
    lower = int(outputs["none"].rows.hit_tokens[3, DRAM]) // 16
    if lower:
        assert outputs["none"].first_token_s[3] == pytest.approx(31 + lower + 1.16)


def returning(prefetcher: str, **changes: Any) -> Any:
    """A's session every 40 s, with B between: three times."""
    requests = [
        Request(40.0 * turn + shift, 64, 1, chain, session=session)
        for turn in range(4)
        for session, chain, shift in ((0, A[:4], 0.0), (1, B[:4], 10.0))
    ]
    return simulate(scenario(requests, hbm=5, dram=100, prefetch=option("prefetch", prefetcher, Prefetcher, **changes)))


def test_a_mean_gap_is_expected_from_the_second_time_on() -> None:
    output = returning("ewma", lead_s=4.0)
    # The last block is computed always. A's turns: 0 computed, 1 its first gap, 2 and 3 as expected.
    assert output.rows.hit_tokens[2].tolist()[DRAM] > 0
    for turn in (4, 6):
        assert output.rows.hit_tokens[turn].tolist() == [48, 0, 0, 0]


def test_a_mean_think_time_is_learnt_from_all_sessions() -> None:
    output = returning("session_aware", lead_s=4.0, alpha=0.5)
    assert output.rows.hit_tokens[6].tolist() == [48, 0, 0, 0]
    assert output.accounts[0, DRAM, HBM, PREFETCH, 0] > 0


def test_nothing_is_fetched_without_room() -> None:
    # C holds four of the five blocks from 30 to 40.64 s and on: A's three do not fit when they are to come up.
    requests = [
        Request(0.0, 64, 1, A[:4], session=0),
        Request(10.0, 64, 1, B[:4], session=1),
        Request(30.0, 60, 5, [], session=2),
        Request(33.0, 80, 1, A, session=0),
    ]
    output = simulate(
        scenario(requests, hbm=5, dram=100, prefetch=option("prefetch", "oracle", Prefetcher, lead_s=1.0))
    )
    assert output.accounts[0, :, :, PREFETCH].sum() == 0
    assert output.rows.hit_tokens[3].sum() == 64


def test_a_timeout_without_seconds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prefetch.timeout_s: given None with mode=timeout"):
        option("prefetch", "oracle", Prefetcher, mode="timeout")
