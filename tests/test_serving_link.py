"""Links: what a transfer takes, who waits for whom, and what is refused. A block of 16 tokens is 64 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from serving_scenarios import Request, links, mixed, names, option, scenario

from pipeline.hardware.base import LinkConstants
from pipeline.placement.base import DEMOTE, KV_HANDOFF, ONBOARD, Placement
from pipeline.serving.link import (
    BLOCKS,
    accounts_of,
    first_stream,
    make_links,
    occupy_handoff,
    pair_of,
    send,
    would_arrive_s,
)
from pipeline.serving.network import arrival_s, settle
from pipeline.serving.simulate import simulate
from pipeline.serving.wiring import LinkLimits, Wiring
from pipeline.spec import InputError

HBM, DRAM, SSD, REMOTE = range(4)


class Transfers:
    """Links of a few instances, and what is sent over them."""

    def __init__(self, constants=None, tiers=(True, True, True, True), pieces=1, **wiring):
        values = {"ranks": 1, "share": 1.0, "instance_count": 2, "instances_per_node": 2, "has_handoff": True}
        constants = links() if constants is None else constants
        self.links = make_links(constants, tiers, 64.0, pieces, Wiring(**(values | wiring)))

    def send(self, instance, source, target, blocks, now_s=0.0, cause=ONBOARD):
        """What `end_s` asks for: the network, the stream, and the end in its work."""
        network = self.links.networks[instance]
        end = send(self.links.state, network, instance, source, target, cause, blocks, now_s)
        return network, first_stream(self.links.state, instance) + pair_of(self.links.state, source, target), end

    def guess_s(self, instance, source, target, blocks, now_s=0.0):
        network = self.links.networks[instance]
        return would_arrive_s(self.links.state, network, instance, source, target, blocks, now_s)

    def hand_off(self, source, target, blocks, now_s=0.0):
        return occupy_handoff(self.links.state, source, target, blocks, now_s)


def end_s(sent):
    """When a transfer arrives, once everything before it has happened; all must be sent by then."""
    network, stream, end = sent
    while network.change_s < arrival_s(network, stream, end):
        settle(network, network.change_s)
    return pytest.approx(arrival_s(network, stream, end))


def test_a_transfer_takes_latency_pieces_and_bytes():
    made = Transfers(links() | {("dram", "hbm"): LinkConstants(32.0, 0.5, 0.25)}, pieces=3)
    assert end_s(made.send(0, DRAM, HBM, 2, 10.0)) == 10 + 0.5 + 2 * (3 * 0.25 + 64 / 32)


def test_transfers_queue_in_one_direction_and_not_across_directions_or_instances():
    made = Transfers()
    sent = [
        made.send(0, DRAM, HBM, 2),
        made.send(0, DRAM, HBM, 1, 0.5),
        made.send(0, HBM, DRAM, 1, 0.5, DEMOTE),
        made.send(1, DRAM, HBM, 1, 0.5),
    ]
    assert [end_s(one) for one in sent] == [2.0, 3.0, 1.5, 1.5]
    account = accounts_of(made.links.state)[0, DRAM, HBM, ONBOARD]
    assert account.tolist() == [3.0, 3.0, 1.5], "blocks, busy, wait"


def test_ssd_bounces_through_dram_at_the_pace_of_the_drive():
    constants = links() | {
        ("ssd", "dram"): LinkConstants(16.0, 0.5, 0.0),
        ("dram", "hbm"): LinkConstants(64.0, 0.25, 0.0),
    }
    assert end_s(Transfers(constants).send(0, SSD, HBM, 2)) == 0.5 + 0.25 + 2 * 64 / 16, "both latencies count"


def test_an_ssd_read_leaves_the_rest_of_the_link_to_loads_from_dram():
    made = Transfers(links() | {("ssd", "dram"): LinkConstants(16.0, 0.0, 0.0)})
    # 16 of 64 bytes/s for 8 s, during which DRAM has 48: 6 blocks of 64 bytes, and the other 2 at full speed.
    read, load = made.send(0, SSD, HBM, 2), made.send(0, DRAM, HBM, 8)
    assert (end_s(read), end_s(load)) == (8.0, 10.0)


def test_instances_of_a_node_share_its_drives_half_each():
    made = Transfers(instance_count=3)
    sent = [made.send(0, SSD, HBM, 2), made.send(1, SSD, HBM, 1), made.send(2, SSD, HBM, 2)]
    # Half speed until the second's block is there after 2 s; then the first has one left.
    assert [end_s(one) for one in sent] == [3.0, 2.0, 2.0]
    assert made.links.is_shared
    assert not Transfers(instances_per_node=1).links.is_shared
    assert not Transfers(tiers=(True, True, False, False)).links.is_shared


def test_instances_share_a_remote_pool_where_its_speed_is_known():
    limits = LinkLimits(pool_bytes_per_s=64.0)
    for given, expected in ((limits, 2.0), (LinkLimits(), 1.0)):
        made = Transfers(instances_per_node=1, limits=given)
        sent = [made.send(0, REMOTE, HBM, 1), made.send(1, REMOTE, HBM, 1)]
        assert [end_s(one) for one in sent] == [expected, expected]


def test_what_comes_from_a_remote_pool_takes_the_nic_and_the_link():
    constants = links() | {("remote", "dram"): LinkConstants(32.0, 0.5, 0.0), ("dram", "hbm"): LinkConstants(64, 1, 0)}
    made = Transfers(constants)
    # 2 blocks at 32 bytes/s: 4 s and both latencies. DRAM has the other half of the link meanwhile.
    assert end_s(made.send(0, REMOTE, HBM, 2)) == 1.5 + 4.0
    assert end_s(made.send(0, DRAM, REMOTE, 2)) == 2.0, "the other direction"


def test_a_hand_off_occupies_the_sending_and_the_receiving_side():
    made = Transfers(instance_count=4, tiers=(True, False, False, False))
    assert made.hand_off(0, 2, 2) == 2.0
    assert made.hand_off(0, 3, 1) == 3.0, "the sender is busy"
    assert made.hand_off(1, 2, 1) == 3.0, "the receiver is busy"
    assert made.hand_off(2, 0, 1) == 1.0, "the other way is free"
    assert accounts_of(made.links.state)[2, HBM, HBM, KV_HANDOFF].tolist() == [3.0, 3.0, 2.0]


def test_each_rank_moves_its_share():
    made = Transfers(ranks=4, share=1 / 4)
    assert end_s(made.send(0, DRAM, HBM, 4)) == 1.0
    assert end_s(made.send(0, DRAM, SSD, 4)) == 4.0, "a node has one set of drives, however many ranks use it"
    assert made.hand_off(0, 1, 4) == 1.0


def test_each_rank_moves_all_of_a_latent():
    made = Transfers(ranks=4, share=1.0)
    assert end_s(made.send(0, DRAM, HBM, 4)) == 4.0
    assert made.hand_off(0, 1, 4) == 4.0


def test_a_guess_moves_nothing_and_counts_what_is_queued():
    made = Transfers()
    assert made.guess_s(0, DRAM, HBM, 2, 1.0) == 3.0
    made.send(0, DRAM, HBM, 3, 1.0)
    assert [made.guess_s(0, DRAM, HBM, 2, now_s) for now_s in (1.0, 2.0, 9.0)] == [6.0, 6.0, 11.0]
    assert accounts_of(made.links.state)[0, DRAM, HBM, ONBOARD, BLOCKS] == 3


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_a_link_without_bandwidth_is_refused(bandwidth):
    with pytest.raises(InputError, match=r"link .*bandwidth of (0.0|-1.0|nan|inf) bytes/s, expected a number above 0"):
        Transfers(links(bandwidth))


@pytest.mark.parametrize("field", ["latency_s", "descriptor_s"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_an_impossible_cost_is_refused(field, value):
    constants = links() | {("dram", "hbm"): LinkConstants(1.0, 0.0, 0.0)._replace(**{field: value})}
    with pytest.raises(InputError, match="expected 0 or more"):
        Transfers(constants)


@pytest.mark.parametrize("missing", [("ssd", "dram"), ("dram", "remote"), ("hbm", "hbm"), ("hbm", "dram")])
def test_a_link_that_is_needed_and_not_given_is_refused(missing):
    with pytest.raises(InputError, match=f"link {' to '.join(missing)}: no constants"):
        Transfers({pair: c for pair, c in links().items() if pair != missing})
    Transfers({}, tiers=(True, False, False, False), has_handoff=False)


def reloads(bandwidth_bytes_per_s: float = 64.0, again_s: float = 20.0):
    """3 blocks of HBM: B's prompt pushes out A's, which then comes back from DRAM while C decodes."""
    chain = names("a", 3)
    requests = [
        Request(0.0, 48, 1, chain),
        Request(10.0, 48, 1, names("b", 3)),
        Request(again_s, 49, 1, chain),
    ]
    return scenario(requests, hbm=4, dram=4, links=links(bandwidth_bytes_per_s))


def test_a_hit_below_hbm_is_loaded_before_the_rest_is_computed():
    output = simulate(reloads())
    # B needs 3 of 4 blocks: the last two of A's go down. They come up in 2 s, then one token is computed.
    assert output.rows.hit_tokens[2].tolist() == [16, 32, 0, 0]
    assert output.rows.scheduled_s[2] == 20.0
    assert output.rows.loading_s[2] == pytest.approx(2.0)
    assert output.last_token_s[2] == pytest.approx(22.0 + 1.01)
    moved = output.accounts[0]
    assert moved[DRAM, HBM, ONBOARD].tolist() == [2.0, 2.0, 0.0]
    assert moved[HBM, DRAM, DEMOTE, BLOCKS] == 2 + 2 + 1, "B's make room for them, and for the last token's"


def test_others_go_on_while_one_loads():
    chain = names("a", 3)
    requests = [
        Request(0.0, 48, 1, chain),
        Request(10.0, 48, 1, names("b", 3)),
        Request(19.0, 17, 4, names("c", 1)),
        Request(19.5, 49, 1, chain),
    ]
    output = simulate(scenario(requests, hbm=7, dram=7))
    # C: prompt [19, 20.17), for which A's last block goes down till 20, and comes up from 20.17 to 21.17, while C
    # decodes; A's 49th token is computed with C's third.
    assert output.rows.scheduled_s[3] == pytest.approx(20.17)
    assert output.rows.hit_tokens[3].tolist() == [32, 16, 0, 0]
    assert output.rows.loading_s[3] == pytest.approx(1.0)
    assert output.last_token_s[3] == pytest.approx(20.17 + 1.01 + 1.02)
    assert output.last_token_s[2] == pytest.approx(20.17 + 1.01 + 1.02 + 1.01)


def test_who_shares_a_block_that_is_being_loaded_waits_for_it_too():
    chain = names("a", 3)
    requests = [
        Request(0.0, 48, 1, chain),
        Request(10.0, 48, 1, names("b", 3)),
        Request(20.0, 49, 1, chain),
        Request(20.5, 49, 1, chain),
    ]
    output = simulate(scenario(requests, hbm=5, dram=4))
    dram_blocks = int(output.rows.hit_tokens[2, DRAM]) // 16
    assert dram_blocks > 0 and output.rows.hit_tokens[3, DRAM] == 0
    assert output.first_token_s[3] == pytest.approx(20 + dram_blocks + 1.02)
    assert output.rows.loading_s[3] == pytest.approx(dram_blocks - 0.5)


def test_instances_of_a_node_load_from_its_drives_at_half_speed_each():
    def ends(per_node):
        chains = [names(c, 3) for c in "ab"]
        warm = [Request(0.0, 48, 1, chains[0]), Request(0.0, 48, 1, chains[1])]
        push = [Request(10.0, 48, 1, names(c, 3)) for c in "xy"]
        again = [Request(30.0, 49, 1, chains[0]), Request(30.0, 49, 1, chains[1])]
        case = scenario([*warm, *push, *again], hbm=4, ssd=8, cluster=mixed(2), instances_per_node=per_node)
        output = simulate(case)
        assert output.rows.hit_tokens[4:, SSD].tolist() == [32, 32]
        return output.last_token_s[4:].tolist()

    assert ends(1) == [pytest.approx(33.01)] * 2
    assert ends(2) == [pytest.approx(35.01)] * 2


def test_demotions_delay_later_transfers_in_their_direction_only():
    chain = names("a", 3)
    requests = [Request(0.0, 48, 1, chain), *(Request(t, 48, 1, names(n, 3)) for t, n in ((10.0, "b"), (20.0, "c")))]
    output = simulate(scenario([*requests, Request(60.0, 49, 1, chain)], hbm=4, dram=9, links=links(6.4)))
    # Two of A's go down from 10 to 30, its first and two of B's from 30 to 60. All of A's come up from 60 to 90, and
    # B's last and two of C's, which make room, go down; C's last one makes room for A's last token.
    account = output.accounts[0]
    assert account[HBM, DRAM, DEMOTE].tolist() == pytest.approx([2 + 3 + 3 + 1, 90.0, 10.0])
    assert account[DRAM, HBM, ONBOARD].tolist() == pytest.approx([3, 30.0, 0.0])
    assert output.rows.loading_s[3] == pytest.approx(30.0)


def test_more_bandwidth_is_never_slower_for_a_single_request():
    ends = [simulate(reloads(rate, again_s=1000.0)).last_token_s[2] for rate in np.geomspace(1.0, 1e6, 25)]
    assert np.all(np.diff(ends) <= 0)
    assert ends[-1] == pytest.approx(1001.01, abs=1e-3)


def test_without_demotion_nothing_is_loaded():
    chain = names("a", 3)
    requests = [Request(0.0, 48, 1, chain), Request(10.0, 48, 1, names("b", 3)), Request(20.0, 49, 1, chain)]
    output = simulate(scenario(requests, hbm=4, placement=option("placement", "gpu_only", Placement)))
    assert output.rows.hit_tokens[2].tolist() == [16, 0, 0, 0]
    assert output.accounts.sum() == 0
