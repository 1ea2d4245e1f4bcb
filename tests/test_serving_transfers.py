"""What transfers between tiers do to requests, by hand.

A step takes 1 s and 0.01 s for each token; a block of 16 tokens crosses a link in 1 s. A's prompt of three blocks is
computed first, from 0 to 1.48 s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving_scenarios import MODEL, Request, engine, links, mixed, names, option, scenario

from pipeline.hardware.base import LinkConstants
from pipeline.placement.base import DEMOTE, OFFLOAD, ONBOARD, Placement
from pipeline.serving.cluster import Cluster
from pipeline.serving.invariants import check
from pipeline.serving.link import BLOCKS
from pipeline.serving.scenario import Scenario, SimulationOutput
from pipeline.serving.simulate import simulate
from pipeline.serving.wiring import LinkLimits
from pipeline.spec import InputError

HBM, DRAM, SSD, REMOTE = range(4)
A = names("a", 3)
THROUGH = {"inclusion": "inclusive", "write_policy": "write_through"}


def rules(**changes: Any) -> Placement:
    return option("placement", "tiered", Placement, **({"write_buffer_s": 1e9} | changes))


def run(case: Scenario) -> SimulationOutput:
    """Simulate, and see that runs of decoding and single steps are the same."""
    output = simulate(case)
    single = Cluster(case, coasts=False).run()
    check(single)
    for name in ("first_token_s", "last_token_s", "hit_tokens", "loading_s", "max_gap_s"):
        np.testing.assert_array_equal(output.rows[name], single.rows[name])
    np.testing.assert_array_equal(output.accounts, single.accounts)
    return output


@pytest.mark.parametrize(
    ("again_s", "hit_blocks", "first_s"),
    [
        (3.2, 1, 3.2 + 1 + 1.33),  # written from 1.48 on: there at 2.48, 3.48 and 4.48
        (3.5, 2, 3.5 + 2 + 1.17),
        (4.47, 2, 4.47 + 2 + 1.17),
        (4.49, 3, 4.49 + 3 + 1.01),
    ],
)
def test_write_through_begins_when_the_step_ends_and_is_a_hit_once_it_is_there(
    again_s: float, hit_blocks: int, first_s: float
) -> None:
    # B, from 1.5 to 3.14, takes all of HBM; A comes again with a token more. What is still on its way is computed.
    requests = [Request(0.0, 48, 1, A), Request(1.5, 64, 1, names("b", 4)), Request(again_s, 49, 1, A)]
    output = run(scenario(requests, hbm=4, dram=20, placement=rules(**THROUGH)))
    assert output.rows.hit_tokens[2].tolist() == [0, 16 * hit_blocks, 0, 0]
    assert output.first_token_s[2] == pytest.approx(first_s)
    assert output.accounts[0, HBM, DRAM, OFFLOAD].tolist() == pytest.approx([7, 7.0, 4.48 - 3.14])


@pytest.mark.parametrize(("again_s", "hit_blocks", "first_s"), [(12.9, 0, 12.9 + 1.49), (13.1, 3, 13.1 + 3 + 1.01)])
def test_a_demoted_block_is_a_hit_once_it_is_there(again_s: float, hit_blocks: int, first_s: float) -> None:
    # B pushes A's blocks out at 10, the last first: the first one is there at 13.
    requests = [Request(0.0, 48, 1, A), Request(10.0, 64, 1, names("b", 4)), Request(again_s, 49, 1, A)]
    output = run(scenario(requests, hbm=4, dram=20, placement=rules()))
    assert output.rows.hit_tokens[2].tolist() == [0, 16 * hit_blocks, 0, 0]
    assert output.first_token_s[2] == pytest.approx(first_s)
    assert output.accounts[0, DRAM, HBM, ONBOARD, BLOCKS] == hit_blocks
    # B's go down too: all four for A's three and its last token.
    assert output.accounts[0, HBM, DRAM, DEMOTE, BLOCKS] == 3 + 4


def test_a_block_computed_again_while_it_is_on_its_way_is_no_hit_below_afterwards() -> None:
    requests = [Request(0.0, 48, 1, A), Request(10.0, 64, 1, names("b", 4)), Request(12.5, 49, 1, A)]
    output = simulate(scenario([*requests, Request(30.0, 49, 1, A)], hbm=4, dram=20, placement=rules()))
    assert output.rows.hit_tokens[2:].tolist() == [[0, 0, 0, 0], [48, 0, 0, 0]]


@pytest.mark.parametrize(("buffer_s", "last_s"), [(9.0, 3.66), (1.5, 5.15), (0.0, 6.65)])
def test_an_engine_waits_while_writes_are_behind(buffer_s: float, last_s: float) -> None:
    # Four blocks are written from 1.64 to 5.64. The step that starts then goes on, till 2.65; the next starts when no
    # more than the buffer is left.
    case = scenario(
        [Request(0.0, 64, 3, names("a", 4))],
        hbm=10,
        dram=20,
        placement=rules(**THROUGH, when_writes_lag="wait", write_buffer_s=buffer_s),
    )
    output = run(case)
    assert output.last_token_s[0] == pytest.approx(last_s)
    assert output.rows.max_gap_s[0] == pytest.approx(last_s - 2.65)
    assert output.instances[0].dropped_blocks.sum() == 0


def test_tokens_belong_to_the_end_of_their_step_though_the_next_waits() -> None:
    case = scenario(
        [Request(0.0, 64, 3, names("a", 4))],
        hbm=10,
        dram=20,
        placement=rules(**THROUGH, when_writes_lag="wait", write_buffer_s=0.0),
        timeline_interval_s=1.0,
    )
    for coasts in (True, False):
        tokens = Cluster(case, coasts=coasts).run().instances[0].bins[:, 3].tolist()
        assert tokens == [0, 1, 1, 0, 0, 0, 1], "at 1.64, 2.65 and 6.65"


@pytest.mark.parametrize(("buffer_s", "dropped"), [(0.0, 3), (1.5, 2), (2.0, 1), (9.0, 0)])
def test_or_drops_them_and_counts_that(buffer_s: float, dropped: int) -> None:
    requests = [Request(0.0, 64, 3, names("a", 4)), Request(10.0, 144, 1, names("b", 9))]
    case = scenario(
        [*requests, Request(40.0, 65, 1, names("a", 4))],
        hbm=9,
        dram=20,
        placement=rules(**THROUGH, when_writes_lag="drop", write_buffer_s=buffer_s),
    )
    output = run(case)
    assert output.last_token_s[0] == pytest.approx(3.66)
    assert output.rows.hit_tokens[2].tolist() == [0, 64 - 16 * dropped, 0, 0], "what is dropped is not there"
    # Of B's nine as many are written as of A's four; of A's second time what was dropped, after 41.
    assert output.instances[0].dropped_blocks[DRAM] >= dropped + max(9 - (4 - dropped), 0) if dropped else True
    assert output.instances[0].dropped_blocks[[HBM, SSD, REMOTE]].sum() == 0


def slowed(hbm_bytes_per_s: float, ranks: int = 1, **changes: Any) -> SimulationOutput:
    """A's four blocks are written from 1.64 on, while it decodes twice."""
    case = scenario(
        [Request(0.0, 64, 3, names("a", 4))],
        hbm=10,
        dram=20,
        placement=rules(**THROUGH),
        hbm_bytes_per_s=hbm_bytes_per_s,
        engine=engine(tensor_parallel=ranks),
        **changes,
    )
    return run(case)


def test_transfers_slow_the_part_of_a_step_that_reads_hbm() -> None:
    # 64 of 640 bytes/s; a step reads the weights, 16 bytes, and the KV of 65 and of 66 tokens, 4 bytes each.
    assert MODEL.rank_weight_bytes(1) == 16
    expected = 1.64 + (1.01 + 0.1 * (16 + 65 * 4) / 640) + (1.01 + 0.1 * (16 + 66 * 4) / 640)
    assert slowed(640.0).last_token_s[0] == pytest.approx(expected)


def test_no_more_than_all_of_a_step_is_slowed() -> None:
    # At 100 bytes/s reading takes longer than the step; the transfers take 0.64 of the bandwidth.
    assert slowed(100.0).last_token_s[0] == pytest.approx(1.64 + 2 * 1.01 * 1.64)


def test_no_transfer_and_no_bandwidth_slow_nothing() -> None:
    assert slowed(1e12).last_token_s[0] == pytest.approx(3.66)
    fast = {pair: LinkConstants(1e9, 0.0, 0.0) for pair in links()}
    assert slowed(1e9, links=fast).last_token_s[0] == pytest.approx(3.66)


def test_a_step_is_slowed_by_what_each_rank_moves() -> None:
    # One KV head on two ranks: each has all KV and half of the weights, and moves 64 bytes/s over a link of its own.
    expected = 1.64 + sum(1.01 + 0.1 * (8 + tokens * 4) / 640 for tokens in (65, 66))
    assert MODEL.kv_rank_share(2) == 1
    assert slowed(640.0, ranks=2).last_token_s[0] == pytest.approx(expected)
    # Two KV heads of four bytes each: a rank moves 64 bytes of a block of 128.
    both = MODEL.model_copy(update={"heads": 2, "kv_heads": 2})
    expected = 1.64 + sum(1.01 + 0.1 * (both.rank_weight_bytes(2) + tokens * 4) / 640 for tokens in (65, 66))
    assert slowed(640.0, ranks=2, model=both).last_token_s[0] == pytest.approx(expected)


def test_steps_go_on_faster_when_a_transfer_has_ended() -> None:
    # One block is written from 1.16 to 2.16: the step from 1.16 is slowed, the one after it is not.
    case = scenario([Request(0.0, 16, 3, names("a", 1))], dram=20, placement=rules(**THROUGH), hbm_bytes_per_s=640.0)
    assert run(case).last_token_s[0] == pytest.approx(1.16 + 1.01 + 0.1 * (16 + 17 * 4) / 640 + 1.01)


@pytest.mark.parametrize(
    ("ranks", "kv_heads", "load_s"), [(1, 1, 3.0), (2, 1, 3.0), (1, 2, 6.0), (2, 2, 3.0), (4, 2, 3.0)]
)
def test_each_rank_loads_its_heads_or_all_of_a_head_that_ranks_share(ranks: int, kv_heads: int, load_s: float) -> None:
    requests = [Request(0.0, 48, 1, A), Request(10.0, 64, 1, names("b", 4)), Request(50.0, 49, 1, A)]
    case = scenario(
        requests,
        hbm=4,
        dram=20,
        placement=rules(),
        engine=engine(tensor_parallel=ranks),
        model=MODEL.model_copy(update={"heads": 4, "kv_heads": kv_heads}),
    )
    assert run(case).rows.loading_s[2] == pytest.approx(load_s)


def shared(again_s: float, **changes: Any) -> SimulationOutput:
    """Two instances; A at the first, and again at the second."""
    values: dict[str, Any] = {"hbm": 8, "dram": 8, "shared_by": {"dram": "node"}, "placement": rules(**THROUGH)}
    requests = [Request(0.0, 48, 1, A), Request(again_s, 49, 1, A)]
    return run(scenario(requests, cluster=mixed(2), **(values | changes)))


def test_what_one_instance_wrote_another_of_the_node_hits_over_its_own_link() -> None:
    output = shared(10.0)
    assert output.instance.tolist() == [0, 1]
    assert output.rows.hit_tokens[1].tolist() == [0, 48, 0, 0]
    assert output.first_token_s[1] == pytest.approx(10 + 3 + 1.01)
    assert output.accounts[1, DRAM, HBM, ONBOARD].tolist() == [3.0, 3.0, 0.0]
    assert output.accounts[0, HBM, DRAM, OFFLOAD].tolist() == [3.0, 3.0, 0.0]
    assert output.accounts[1, HBM, DRAM].sum() == 0, "it is there already"
    assert output.instances[0].capacity_blocks.tolist() == [8, 8, 0, 0]
    assert sum(use.peak_used_blocks[DRAM] for use in output.instances) == 3


def test_but_not_before_it_is_there_nor_from_another_node() -> None:
    assert shared(3.0).rows.hit_tokens[1].tolist() == [0, 16, 0, 0]
    assert shared(10.0, instances_per_node=1).rows.hit_tokens[1].sum() == 0
    assert shared(10.0, shared_by={}).rows.hit_tokens[1].sum() == 0
    assert shared(10.0, instances_per_node=1, shared_by={"dram": "cluster"}).rows.hit_tokens[1].sum() == 48


def test_loads_of_instances_share_the_dram_of_their_node() -> None:
    # Both load A at 50, after B has pushed it out of both: 128 bytes/s over their links, 96 from the DRAM.
    requests = [Request(0.0, 48, 1, A), Request(0.0, 48, 1, A)]
    requests += [Request(10.0, 64, 1, names("b", 4)), Request(10.0, 64, 1, names("c", 4))]
    requests += [Request(50.0, 49, 1, A), Request(50.0, 49, 1, A)]
    for limit, load_s in ((None, 3.0), (96.0, 4.0)):
        case = scenario(
            requests,
            hbm=4,
            dram=20,
            shared_by={"dram": "node"},
            cluster=mixed(2),
            placement=rules(**THROUGH),
            link_limits=LinkLimits(host_dram_bytes_per_s=limit),
        )
        assert run(case).rows.loading_s[4:].tolist() == pytest.approx([load_s, load_s])


def test_a_remote_pool_is_reached_over_the_nic_and_the_link() -> None:
    slow = {pair: LinkConstants(32.0, 0.0, 0.0) for pair in (("dram", "remote"), ("remote", "dram"))}
    requests = [Request(0.0, 48, 1, A), Request(10.0, 64, 1, names("b", 4))]
    for again_s, hits, first_s in ((15.9, 0, 15.9 + 1.49), (16.1, 48, 16.1 + 6 + 1.01)):
        case = scenario(
            [*requests, Request(again_s, 49, 1, A)], hbm=4, remote=20, placement=rules(), links=links() | slow
        )
        output = run(case)
        assert output.rows.hit_tokens[2].tolist() == [0, 0, 0, hits]
        assert output.first_token_s[2] == pytest.approx(first_s)


def test_a_remote_pool_may_be_of_all_instances_of_the_cluster() -> None:
    output = shared(20.0, dram=0, remote=8, shared_by={"remote": "cluster"}, instances_per_node=1)
    assert output.rows.hit_tokens[1].tolist() == [0, 0, 0, 48]
    assert output.first_token_s[1] == pytest.approx(20 + 3 + 1.01)


def test_a_prefix_in_all_four_tiers_comes_up_over_all_links_at_once() -> None:
    # HBM holds A's first, DRAM the second, SSD the third, the pool the fourth, after B and C have pushed them down.
    fast = {pair: LinkConstants(6400.0, 0.0, 0.0) for pair in links()}
    requests = [Request(0.0, 64, 1, names("a", 4))]
    requests += [Request(10.0 * k, 16, 1, names(f"x{k}", 1)) for k in range(1, 4)]
    case = scenario([*requests, Request(90.0, 65, 1, names("a", 4))], hbm=5, dram=1, ssd=1, remote=9, links=fast)
    case = replace(case, capacity_blocks=[4, 1, 1, 9])
    output = run(replace(case, trace=case.trace, capacity_blocks=[5, 1, 1, 9]))
    hits = output.rows.hit_tokens[4]
    assert hits.sum() == 64
    assert hits[HBM] > 0


# Whatever it is given, a run ends: it is refused in one line, or what cannot be served is counted with a reason.


def hard(**changes: Any) -> Scenario:
    requests = [Request(0.1 * k, 40, 20, names(f"a{k % 3}", 3)) for k in range(8)]
    return scenario(requests, **changes)


def test_an_instance_without_hbm_is_refused() -> None:
    with pytest.raises(InputError, match="kv_capacity_tokens of instance 0: given 0, expected above 0"):
        simulate(hard(hbm=0, dram=50, placement=rules(**THROUGH)))


def test_a_request_larger_than_hbm_is_rejected_however_much_lies_below() -> None:
    requests = [Request(0.0, 48, 1, A), Request(1.0, 100, 10, names("b", 6)), Request(2.0, 48, 1, A)]
    output = simulate(scenario(requests, hbm=6, dram=500, ssd=500, remote=500))
    assert output.reject_reason.tolist() == ["", "exceeds_kv_capacity", ""]


@pytest.mark.parametrize("lag", ["wait", "drop"])
@pytest.mark.parametrize("policy", [{}, THROUGH, {**THROUGH, "spares_hbm": True, "evict_at_ratio": 0.01}])
def test_it_ends_where_hbm_holds_one_request_and_the_tiers_below_a_block(policy: dict[str, Any], lag: str) -> None:
    placement = rules(**policy, when_writes_lag=lag, write_buffer_s=0.0)
    output = run(hard(hbm=4, dram=1, ssd=1, remote=1, placement=placement, links=links(3.0)))
    assert not np.isnan(output.last_token_s).any()


def test_it_ends_where_a_link_hardly_moves() -> None:
    output = run(hard(hbm=4, dram=9, placement=rules(**THROUGH), links=links(1e-6), hbm_bytes_per_s=1e-3))
    assert not np.isnan(output.last_token_s).any()
    output = run(hard(hbm=4, dram=9, placement=rules(**THROUGH, when_writes_lag="wait"), links=links(1e-6)))
    assert not np.isnan(output.last_token_s).any()


@pytest.mark.parametrize("scope", ["node", "cluster"])
@pytest.mark.parametrize("tier", ["dram", "ssd", "remote"])
def test_a_shared_tier_of_no_size_is_none(tier: str, scope: str) -> None:
    output = run(hard(hbm=9, shared_by={tier: scope}, cluster=mixed(2), placement=rules(**THROUGH)))
    assert output.rows.hit_tokens[:, 1:].sum() == 0
    assert output.accounts.sum() == 0


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_bandwidths_are_refused(bandwidth: float) -> None:
    with pytest.raises(InputError, match=r"link hbm to dram: given a bandwidth of .* expected a number above 0"):
        simulate(hard(hbm=9, dram=9, links=links() | {("hbm", "dram"): LinkConstants(bandwidth, 0.0, 0.0)}))
