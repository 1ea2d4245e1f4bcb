"""Streams that share resources max-min fairly, by hand, and beside a slow network in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.hardware.base import LinkConstants
from pipeline.placement.state import DRAM, HBM, SSD
from pipeline.serving.link import make_links
from pipeline.serving.network import (
    DONE,
    QUEUED,
    SPEED,
    Stream,
    add,
    arrival_s,
    bytes_per_s,
    free_s,
    has_arrived,
    make_network,
    settle,
    streams,
    wait_for,
)
from pipeline.serving.wiring import HOPS, LinkLimits, Wiring

NEVER = float("inf")


def rates(network: Any, count: int) -> list[float]:
    """Bytes per second of each stream."""
    return [bytes_per_s(network, stream, 1) for stream in range(count)]


# By hand. All streams have 1000 s of work at full speed from time 0 on, unless it says otherwise.


def shared(full: list[float], crosses: list[list[tuple[int, float]]], capacity: list[float]) -> list[float]:
    network = make_network([Stream(*one) for one in zip(full, crosses, strict=True)], capacity)
    for stream in range(len(full)):
        add(network, stream, 1000.0, 0.0)
    return rates(network, len(full))


def test_alone_or_apart_streams_go_at_full_speed() -> None:
    assert shared([50.0, 7.0], [[(0, 1.0)], [(1, 1.0)]], [50.0, 7.0]) == [50.0, 7.0]
    assert shared([50.0], [[]], []) == [50.0]


def test_two_that_read_one_drive_have_half_of_it_each() -> None:
    assert shared([7.0, 7.0], [[(0, 1.0)]] * 2, [7.0]) == pytest.approx([3.5, 3.5])


def test_what_one_cannot_use_is_left_to_the_others() -> None:
    # An SSD read at 7, and loads from DRAM over the same link of 50: one, and two.
    assert shared([7.0, 50.0], [[(0, 1.0), (1, 1.0)], [(1, 1.0)]], [7.0, 50.0]) == pytest.approx([7.0, 43.0])
    assert shared([7.0, 50.0, 50.0], [[(1, 1.0)]] * 3, [7.0, 50.0]) == pytest.approx([7.0, 21.5, 21.5])


def test_who_crosses_a_resource_twice_has_the_same_bytes_and_takes_it_twice() -> None:
    assert shared([99.0, 99.0], [[(0, 2.0)], [(0, 1.0)]], [60.0]) == pytest.approx([20.0, 20.0])


def test_the_narrowest_of_several_is_shared_first() -> None:
    # Streams 0, 1 and 2 share 30 (10 each); 2 and 3 share 90: 80 are left for 3.
    crosses: list[list[tuple[int, float]]] = [[(0, 1.0)], [(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0)]]
    assert shared([90.0] * 4, crosses, [30.0, 90.0]) == pytest.approx([10.0, 10.0, 10.0, 80.0])


def test_speeds_change_when_streams_begin_and_run_dry() -> None:
    network = make_network([Stream(10.0, [(0, 1.0)]), Stream(10.0, [(0, 1.0)])], [10.0])
    add(network, 0, 4.0, 0.0)
    assert free_s(network, 0) == 4.0
    add(network, 1, 1.0, 2.0)  # both at half speed: the second is done at 4, when the first has done 3
    assert (free_s(network, 0), free_s(network, 1)) == (6.0, 4.0)
    end = add(network, 0, 1.0, 3.0)
    assert (end, free_s(network, 0)) == (5.0, 8.0)
    settle(network, 4.0)
    assert (free_s(network, 0), network.change_s) == (6.0, 6.0)
    settle(network, 100.0)
    assert (network.active_count, network.change_s, network.last_s) == (0, NEVER, 6.0)
    assert free_s(network, 0) == 6.0


@pytest.mark.parametrize("now_s", [1e8, 1e10, 1e12])
def test_it_ends_where_what_is_left_is_less_than_a_clock_can_tell(now_s: float) -> None:
    network = make_network([Stream(50.0, [(0, 1.0)]), Stream(50.0, [(0, 1.0)])], [70.0])
    for k in range(50):
        add(network, k % 2, 1.1e-4 * (k + 1), now_s + k * 1.3e-4)
    for _ in range(100):
        settle(network, min(network.change_s, 2 * now_s))
    assert network.active_count == 0


def test_awaited_work_is_looked_for_when_it_may_have_arrived() -> None:
    network = make_network([Stream(10.0, [(0, 1.0)]), Stream(10.0, [(0, 1.0)])], [10.0])
    assert network.look_s == NEVER
    first, last = add(network, 0, 2.0, 0.0), add(network, 0, 2.0, 0.0)
    wait_for(network, 0, first)
    assert network.look_s == 2.0
    add(network, 1, 0.25, 1.0)  # a quarter of a second of work takes half a second, and costs the first as much
    assert network.look_s == 1.5, "speeds change then"
    settle(network, 1.5)
    assert network.look_s == 2.25
    assert [has_arrived(network, 0, now_s) for now_s in (2.0, 2.25, 9.0)] == [False, True, True]
    wait_for(network, 0, last)
    assert (network.look_s, network.awaited_count) == (4.25, 1)
    settle(network, 10.0)
    assert has_arrived(network, 0, 10.0)
    wait_for(network, 0, NEVER)
    assert (network.look_s, network.awaited_count) == (NEVER, 0)
    assert not has_arrived(network, 0, 10.0)
    assert add(network, 0, 1.0, 20.0) == 1.0, "work counts from the last beginning that someone still counts from"


# A cluster's links: a block of 64 bytes, 50 bytes/s over PCIe, 7 bytes/s from a drive, 3 to it.

CONSTANTS = {
    **{pair: LinkConstants(50.0, 0.0, 0.0) for pair in (("hbm", "dram"), ("dram", "hbm"))},
    ("ssd", "dram"): LinkConstants(7.0, 0.0, 0.0),
    ("dram", "ssd"): LinkConstants(3.0, 0.0, 0.0),
    **{pair: LinkConstants(25.0, 0.0, 0.0) for pair in (("remote", "dram"), ("dram", "remote"))},
}
REMOTE = 3


def wired(busy: list[tuple[int, int, int]], limits: LinkLimits, ranks: int = 1, share: float = 1.0) -> list[float]:
    """Bytes of KV per second of (instance, source, target), all of which are busy; two instances, on one node."""
    wiring = Wiring(ranks, share, 2, 2, False, limits)
    links = make_links(CONSTANTS, [True] * 4, 64.0, 1, wiring)
    assert links.is_shared  # the drives
    places = [instance * len(HOPS) + list(HOPS).index((source, target)) for instance, source, target in busy]
    for place in places:
        add(links.networks[0], place, 1000.0, 0.0)
    return [pytest.approx(bytes_per_s(links.networks[0], place, 1)) for place in places]


LOAD, STORE, READ = (0, DRAM, HBM), (0, HBM, DRAM), (0, SSD, HBM)
OTHER_LOAD = (1, DRAM, HBM)


@pytest.mark.parametrize(
    ("busy", "limits", "rates_bytes_per_s"),
    [
        ([LOAD, STORE], LinkLimits(), [50, 50]),
        ([LOAD, STORE], LinkLimits(both_ways_bytes_per_s=83.0), [41.5, 41.5]),
        ([LOAD, READ], LinkLimits(), [43, 7]),
        ([LOAD, READ, STORE], LinkLimits(both_ways_bytes_per_s=83.0), [38, 7, 38]),
        ([READ, (1, SSD, HBM)], LinkLimits(), [3.5, 3.5]),
        ([READ, (1, SSD, DRAM)], LinkLimits(), [3.5, 3.5]),
        ([LOAD], LinkLimits(host_dram_bytes_per_s=40.0), [40]),
        ([READ], LinkLimits(host_dram_bytes_per_s=10.0), [5]),  # written to DRAM and read from it
        ([READ, LOAD], LinkLimits(host_dram_bytes_per_s=50.0), [7, 36]),  # 50 - 2 x 7
        ([(0, DRAM, SSD)], LinkLimits(host_dram_bytes_per_s=10.0), [3]),
        ([LOAD, OTHER_LOAD], LinkLimits(), [50, 50]),
        ([LOAD, OTHER_LOAD], LinkLimits(switch_bytes_per_s=60.0, gpus_per_switch=2), [30, 30]),
        ([LOAD, OTHER_LOAD], LinkLimits(switch_bytes_per_s=60.0, gpus_per_switch=1), [50, 50]),
        ([LOAD, (1, HBM, DRAM)], LinkLimits(switch_bytes_per_s=60.0, gpus_per_switch=2), [50, 50]),  # each way
        ([(0, REMOTE, HBM), (1, REMOTE, HBM)], LinkLimits(pool_bytes_per_s=30.0), [15, 15]),
        ([(0, REMOTE, HBM), (0, HBM, REMOTE)], LinkLimits(pool_bytes_per_s=30.0), [15, 15]),
        ([(0, REMOTE, HBM), LOAD], LinkLimits(), [25, 25]),
    ],
)
def test_links_share_what_their_hops_do(
    busy: list[tuple[int, int, int]], limits: LinkLimits, rates_bytes_per_s: list[float]
) -> None:
    assert wired(busy, limits) == rates_bytes_per_s


def test_ranks_have_links_of_their_own_and_a_latent_crosses_all_of_them() -> None:
    # Four GPUs with a quarter of each block: 200 bytes/s of KV; the host's DRAM sees each byte once.
    assert wired([LOAD], LinkLimits(), 4, 0.25) == [200]
    assert wired([LOAD], LinkLimits(host_dram_bytes_per_s=150.0), 4, 0.25) == [150]
    # Four GPUs that load all of it each: 50 bytes/s of KV, 200 from the host's DRAM.
    assert wired([LOAD], LinkLimits(), 4, 1.0) == [50]
    assert wired([LOAD], LinkLimits(host_dram_bytes_per_s=150.0), 4, 1.0) == [37.5]
    # Two switches of two GPUs each, of 60 bytes/s: 120 for the four.
    assert wired([LOAD], LinkLimits(switch_bytes_per_s=60.0, gpus_per_switch=2), 4, 0.25) == [120]


# A slow network: speeds anew at each event, by filling the resource with the least room per stream first.


@dataclass
class Slow:
    full: list[float]
    crosses: list[dict[int, float]]
    capacity: list[float]
    now_s: float = 0.0
    left_s: list[float] = field(default_factory=list)
    ends: dict[tuple[int, int], float] = field(default_factory=dict)
    queue: list[list[tuple[int, float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = [[] for _ in self.full]

    def rates(self) -> dict[int, float]:
        busy = {stream for stream, queue in enumerate(self.queue) if queue}
        room = dict(enumerate(self.capacity))
        found: dict[int, float] = {}
        while busy:
            most = {s: self.full[s] for s in busy}
            for r, left in room.items():
                weight = sum(self.crosses[s].get(r, 0.0) for s in busy)
                most |= {s: min(most[s], left / weight) for s in busy if r in self.crosses[s]}
            slowest = min(most, key=lambda s: most[s])
            found[slowest] = most[slowest]
            busy.remove(slowest)
            for r, weight in self.crosses[slowest].items():
                room[r] = max(room[r] - weight * most[slowest], 0.0)
        return found

    def until(self, limit_s: float) -> None:
        """Let transfers end, one after the other, up to a time."""
        while any(self.queue):
            speed = {s: rate / self.full[s] for s, rate in self.rates().items()}
            next_s = min(self.queue[s][0][1] / speed[s] for s in speed)
            elapsed_s = min(next_s, limit_s - self.now_s)
            for s in speed:
                name, work_s = self.queue[s][0]
                self.queue[s][0] = name, work_s - speed[s] * elapsed_s
            self.now_s += elapsed_s
            for s in speed:
                if self.queue[s][0][1] <= 1e-12 * max(1.0, self.now_s):
                    self.ends[s, self.queue[s].pop(0)[0]] = self.now_s
            if self.now_s >= limit_s:
                return
        self.now_s = max(self.now_s, limit_s) if limit_s < NEVER else self.now_s


@st.composite
def networks(draw: Any) -> tuple[list[float], list[dict[int, float]], list[float]]:
    count, resources = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    speeds = st.sampled_from([1.0, 3.0, 7.0, 7.0, 25.0, 50.0, 400.0])
    full = [draw(speeds) for _ in range(count)]
    crossed = st.dictionaries(st.integers(0, resources - 1), st.sampled_from([1.0, 1.0, 2.0, 0.5]), max_size=4)
    return full, [draw(crossed) for _ in range(count)], [draw(speeds) for _ in range(resources)]


def assert_max_min(network: Any, slow: Slow) -> None:
    """Each busy stream is at full speed, or crosses a resource that is taken and on which no other is faster."""
    count = len(slow.full)
    busy = [s for s in range(count) if streams(network)[s, SPEED] > 0]
    assert len(busy) == network.active_count
    rate = dict(zip(range(count), rates(network, count), strict=True))
    taken = {}
    for r, capacity in enumerate(slow.capacity):
        used = sum(slow.crosses[s].get(r, 0.0) * rate[s] for s in busy)
        assert used <= capacity * (1 + 1e-6)
        taken[r] = used >= capacity * (1 - 1e-6)
    for s in busy:
        assert rate[s] <= slow.full[s] * (1 + 1e-6)
        is_full = rate[s] >= slow.full[s] * (1 - 1e-6)
        fastest = [
            r for r in slow.crosses[s]
            if taken[r] and all(rate[o] <= rate[s] * (1 + 1e-6) for o in busy if r in slow.crosses[o])
        ]  # fmt: skip
        assert is_full or fastest, (s, rate)


def watch(network: Any, ends: dict[int, tuple[int, float]], found: dict[int, float], limit_s: float) -> None:
    """Let everything happen up to a time, and note when transfers arrive."""
    while True:
        until_s = min(network.change_s, limit_s)
        for name, (stream, end) in ends.items():
            if name not in found and arrival_s(network, stream, end) <= until_s:
                found[name] = arrival_s(network, stream, end)
        if not network.change_s <= limit_s or network.change_s == NEVER:
            break
        settle(network, network.change_s)


@settings(max_examples=150, deadline=None)
@given(wires=networks(), data=st.data())
def test_random_networks_share_and_end_as_the_slow_one_does(wires: Any, data: Any) -> None:
    full, crosses, capacity = wires
    slow = Slow(full, crosses, capacity)
    quiet, watched = (
        make_network([Stream(f, list(c.items())) for f, c in zip(full, crosses, strict=True)], capacity)
        for _ in range(2)
    )
    now_s = 0.0
    ends: dict[int, tuple[int, float]] = {}
    found: dict[int, float] = {}
    for name in range(data.draw(st.integers(1, 12))):
        gap_s = data.draw(st.sampled_from([0.0, 0.25, 1.0, 10.0]))
        for share in sorted(data.draw(st.lists(st.floats(0, 1), max_size=3))):
            watch(watched, ends, found, now_s + gap_s * share)
            settle(watched, now_s + gap_s * share)
        now_s += gap_s
        stream = data.draw(st.integers(0, len(full) - 1))
        work_s = data.draw(st.sampled_from([0.125, 1.0, 1.5, 20.0]))
        watch(watched, ends, found, now_s)
        slow.until(now_s)
        slow.queue[stream].append((name, work_s))
        end = add(quiet, stream, work_s, now_s)
        assert add(watched, stream, work_s, now_s) == end
        ends[name] = (stream, end)
        assert_max_min(quiet, slow)
        expected = slow.rates()
        assert rates(quiet, len(full)) == pytest.approx([expected.get(s, 0.0) for s in range(len(full))], rel=1e-6)
    watch(watched, ends, found, NEVER)
    while quiet.change_s < NEVER:
        settle(quiet, quiet.change_s)
        assert_max_min(quiet, slow)
    slow.until(NEVER)
    assert (quiet.last_s, quiet.active_count) == (watched.last_s, watched.active_count) == (watched.last_s, 0)
    assert streams(quiet).tobytes() == streams(watched).tobytes(), "who looks, and how often, changes something"
    assert np.array_equal(streams(quiet)[:, DONE], streams(quiet)[:, QUEUED])
    wanted = {name: slow.ends[stream, name] for name, (stream, _) in ends.items()}
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(wires=networks(), works=st.lists(st.sampled_from([0.5, 1.0, 4.0]), min_size=6, max_size=6))
def test_work_is_conserved(wires: Any, works: list[float]) -> None:
    """Bytes that went by the speeds in between are the bytes that were sent."""
    full, crosses, capacity = wires
    network = make_network([Stream(f, list(c.items())) for f, c in zip(full, crosses, strict=True)], capacity)
    for stream in range(len(full)):
        add(network, stream, works[stream], 0.0)
    carried = np.zeros(len(full))
    while network.change_s < NEVER:
        before_s, speed = network.last_s, np.array(rates(network, len(full)))
        settle(network, network.change_s)
        carried += speed * (network.last_s - before_s)
    np.testing.assert_allclose(carried, np.array(full) * works[: len(full)], rtol=1e-6)
