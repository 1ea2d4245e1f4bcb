"""Links: what a transfer takes, who waits for whom, and what is refused. A block of 16 tokens is 64 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from serving_scenarios import Request, links, mixed, names, option, scenario

from pipeline.hardware.base import LinkConstants
from pipeline.placement.base import DEMOTE, ONBOARD, Placement
from pipeline.serving.link import BLOCKS, BUSY, WAIT, accounts_of, make_links, occupy, occupy_handoff
from pipeline.serving.simulate import simulate
from pipeline.spec import InputError

HBM, DRAM, SSD = range(3)


def made(constants, tiers=(9, 9, 9, 0), ranks=1, count=2, per_node=2, handoff=True, pieces=1):
    return make_links(constants, tiers, 64.0, pieces, ranks, count, per_node, handoff)


def test_a_transfer_takes_latency_pieces_and_bytes():
    constants = links() | {("dram", "hbm"): LinkConstants(32.0, 0.5, 0.25)}
    state = made(constants, pieces=3)
    assert occupy(state, 0, DRAM, HBM, ONBOARD, 2, 10.0) == pytest.approx(10 + 0.5 + 2 * (3 * 0.25 + 64 / 32))


def test_transfers_queue_in_one_direction_and_not_across_directions_or_instances():
    state = made(links())
    assert occupy(state, 0, DRAM, HBM, ONBOARD, 2, 0.0) == 2.0
    assert occupy(state, 0, DRAM, HBM, ONBOARD, 1, 0.5) == 3.0
    assert occupy(state, 0, HBM, DRAM, DEMOTE, 1, 0.5) == 1.5
    assert occupy(state, 1, DRAM, HBM, ONBOARD, 1, 0.5) == 1.5
    account = accounts_of(state)[0, DRAM, HBM, ONBOARD]
    assert account.tolist() == [3.0, 3.0, 1.5], "blocks, busy, wait"


def test_ssd_bounces_through_dram_and_occupies_both_links():
    constants = links() | {
        ("ssd", "dram"): LinkConstants(16.0, 0.5, 0.0),
        ("dram", "hbm"): LinkConstants(64.0, 0.25, 0.0),
    }
    state = made(constants)
    end_s = occupy(state, 0, SSD, HBM, ONBOARD, 2, 0.0)
    assert end_s == pytest.approx(0.5 + 0.25 + 2 * 64 / 16), "the slower link sets the pace, both latencies count"
    assert occupy(state, 0, DRAM, HBM, ONBOARD, 1, 0.0) == pytest.approx(end_s + 0.25 + 1)


def test_instances_of_a_node_share_its_ssd():
    state = made(links(), count=3, per_node=2)
    assert occupy(state, 0, SSD, HBM, ONBOARD, 2, 0.0) == 2.0
    assert occupy(state, 1, SSD, HBM, ONBOARD, 2, 0.0) == 4.0
    assert occupy(state, 2, SSD, HBM, ONBOARD, 2, 0.0) == 2.0


def test_a_hand_off_occupies_the_sending_and_the_receiving_side():
    state = made(links(), count=4, tiers=(9, 0, 0, 0))
    assert occupy_handoff(state, 0, 2, 2, 0.0) == 2.0
    assert occupy_handoff(state, 0, 3, 1, 0.0) == 3.0, "the sender is busy"
    assert occupy_handoff(state, 1, 2, 1, 0.0) == 3.0, "the receiver is busy"
    assert occupy_handoff(state, 2, 0, 1, 0.0) == 1.0, "the other way is free"


def test_each_rank_moves_its_share():
    state = made(links(), ranks=4)
    assert occupy(state, 0, DRAM, HBM, ONBOARD, 4, 0.0) == 1.0
    assert occupy(state, 0, DRAM, SSD, DEMOTE, 4, 0.0) == 4.0, "a node has one SSD, however many ranks use it"


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_a_link_without_bandwidth_is_refused(bandwidth):
    with pytest.raises(InputError, match="bandwidth"):
        made(links(bandwidth))


@pytest.mark.parametrize("field", ["latency_s", "descriptor_s"])
def test_a_negative_cost_is_refused(field):
    constants = links() | {("dram", "hbm"): LinkConstants(1.0, 0.0, 0.0)._replace(**{field: -1.0})}
    with pytest.raises(InputError, match="expected 0 or more"):
        made(constants)


def test_a_link_that_is_needed_and_not_given_is_refused():
    with pytest.raises(InputError, match="ssd to dram"):
        made({pair: c for pair, c in links().items() if pair != ("ssd", "dram")})
    made({}, tiers=(9, 0, 0, 0), handoff=False)


def reloads(bandwidth_bytes_per_s: float = 64.0):
    """3 blocks of HBM: B's prompt pushes out A's, which then comes back from DRAM while C decodes."""
    chain = names("a", 3)
    requests = [
        Request(0.0, 48, 1, chain),
        Request(10.0, 48, 1, names("b", 3)),
        Request(20.0, 49, 1, chain),
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
        Request(19.0, 16, 4, names("c", 1)),
        Request(19.5, 49, 1, chain),
    ]
    output = simulate(scenario(requests, hbm=6, dram=6))
    # C: prompt [19, 20.16), decodes on; A's load takes 1 block x 1 s from 20.16 while C's steps of 1.01 run.
    assert output.rows.scheduled_s[3] == pytest.approx(20.16)
    assert output.rows.hit_tokens[3].sum() == 48
    assert output.last_token_s[2] == pytest.approx(20.16 + 2 * 1.01 + 1.02)
    assert output.last_token_s[3] >= 20.16 + output.rows.loading_s[3] + 1.01


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


def test_instances_of_a_node_wait_for_each_others_ssd_loads():
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
    assert ends(2) == [pytest.approx(33.01), pytest.approx(35.01)]


def test_demotions_delay_later_transfers_in_their_direction_only():
    output = simulate(reloads(bandwidth_bytes_per_s=6.4))
    account = output.accounts[0]
    # A's two blocks leave from 10 to 30; B's two wait from 20 to 30, and its third from 40, after the load, to 50.
    assert account[HBM, DRAM, DEMOTE, BUSY] == pytest.approx(50.0)
    assert account[HBM, DRAM, DEMOTE, WAIT] == pytest.approx(20.0)
    assert output.rows.loading_s[2] == pytest.approx(20.0)


def test_more_bandwidth_is_never_slower_for_a_single_request():
    ends = [simulate(reloads(rate)).last_token_s[2] for rate in np.geomspace(1.0, 1e6, 25)]
    assert np.all(np.diff(ends) <= 0)
    assert ends[-1] == pytest.approx(21.01, abs=1e-3)


def test_without_demotion_nothing_is_loaded():
    chain = names("a", 3)
    requests = [Request(0.0, 48, 1, chain), Request(10.0, 48, 1, names("b", 3)), Request(20.0, 49, 1, chain)]
    output = simulate(scenario(requests, hbm=4, placement=option("placement", "gpu_only", Placement)))
    assert output.rows.hit_tokens[2].tolist() == [16, 0, 0, 0]
    assert output.accounts.sum() == 0
