"""Links between tiers and between instances: what a transfer takes, over what it goes, and an account of all.

Transfer time = latency + pieces x descriptor_s + bytes / bandwidth of the slowest hop, plus the latencies of the
others: SSD and a remote pool are reached through DRAM, piece by piece. Between the tiers of an instance transfers are
streams of a network (see network.py). A hand-off leaves one NIC and enters another: first in, first out at both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof

from pipeline.hardware.base import LinkConstants
from pipeline.placement.base import CAUSES, KV_HANDOFF
from pipeline.placement.state import HBM
from pipeline.records import make_record, view_float_table, view_int_table, view_ints
from pipeline.serving.network import Network, Stream, add, arrival_s, free_s, make_network, settle
from pipeline.serving.state import NONE, Floats
from pipeline.serving.wiring import HANDOFF, HOPS, PER_GPU, STREAMS, Resources, Wiring, needed
from pipeline.spec import InputError
from pipeline.values import TIERS

LinkState = np.record
TIER_COUNT, CAUSE_COUNT = len(TIERS), len(CAUSES)

FREE_AT, LATENCY, PER_BLOCK = range(3)
"""Columns of a NIC: when it is free again, the fixed cost of a transfer, the time of one block."""
BLOCKS, BUSY, WAIT = range(3)
"""Columns of an account."""


class Links(NamedTuple):
    """The links of a cluster, and the networks that each instance's streams are part of: its own, or one of all."""

    state: LinkState
    networks: list[Network]
    is_shared: bool


@njit(cache=True)
def _accounts(state: LinkState) -> Floats:
    return view_float_table(state, state.accounts_at, state.accounts_rows, 3)


@njit(cache=True)
def _nics(state: LinkState) -> Floats:
    return view_float_table(state, state.nics_at, state.nics_rows, 3)


@njit(cache=True)
def waiting_rows(state: LinkState) -> Any:
    """View the first and the last row that waits for each stream, (instances x STREAMS, 2), -1 without one."""
    return view_int_table(state, state.waiting_at, state.waiting_rows, 2)


@njit(cache=True)
def first_stream(state: LinkState, instance: int) -> int:
    """Number of the first stream of an instance in its network."""
    return instance * STREAMS if state.is_shared else 0


@njit(cache=True)
def pair_of(state: LinkState, source: int, target: int) -> int:
    """Place of a pair of tiers among an instance's streams."""
    return int(view_ints(state, state.pairs_at, state.pairs_rows)[source * TIER_COUNT + target])


@njit(cache=True)
def _account(state: LinkState, instance: int, source: int, target: int, cause: int) -> Floats:
    return _accounts(state)[((instance * TIER_COUNT + source) * TIER_COUNT + target) * CAUSE_COUNT + cause]


@njit(cache=True)
def _work_s(state: LinkState, source: int, target: int, block_count: int) -> float:
    return state.latency_s[source, target] + block_count * state.block_s[source, target]


@njit(cache=True)
def send(
    state: LinkState,
    n: Network,
    instance: int,
    source: int,
    target: int,
    cause: int,
    block_count: int,
    now_s: float,
) -> float:
    """Queue blocks of an instance between two of its tiers; return the end of the transfer in its stream's work."""
    stream = first_stream(state, instance) + pair_of(state, source, target)
    work_s = _work_s(state, source, target, block_count)
    end = add(n, stream, work_s, now_s)
    account = _account(state, instance, source, target, cause)
    account[BLOCKS] += block_count
    account[BUSY] += work_s
    account[WAIT] += max(arrival_s(n, stream, end - work_s) - now_s, 0.0)
    return end


@njit(cache=True)
def free_from_s(state: LinkState, n: Network, instance: int, source: int, target: int) -> float:
    """When all that an instance has sent from one tier to another will have arrived, if no speed changes."""
    return free_s(n, first_stream(state, instance) + pair_of(state, source, target))


@njit(cache=True)
def would_arrive_s(
    state: LinkState, n: Network, instance: int, source: int, target: int, block_count: int, now_s: float
) -> float:
    """When blocks would arrive if they were sent now, and no speed changed; nothing is moved."""
    settle(n, now_s)
    return max(free_from_s(state, n, instance, source, target), now_s) + _work_s(state, source, target, block_count)


@njit(cache=True)
def occupy_handoff(state: LinkState, source_instance: int, instance: int, block_count: int, now_s: float) -> float:
    """Send KV from one instance's NIC to another's; return when it has arrived."""
    nics = _nics(state)
    out, to = 2 * source_instance, 2 * instance + 1
    start_s = max(now_s, nics[out, FREE_AT], nics[to, FREE_AT])
    end_s = start_s + nics[out, LATENCY] + nics[to, LATENCY] + block_count * nics[out, PER_BLOCK]
    nics[out, FREE_AT] = nics[to, FREE_AT] = end_s
    account = _account(state, instance, HBM, HBM, KV_HANDOFF)
    account[BLOCKS] += block_count
    account[BUSY] += end_s - start_s
    account[WAIT] += start_s - now_s
    return end_s


def block_time(key: tuple[str, str], constants: LinkConstants, block_bytes: float, pieces: int) -> tuple[float, float]:
    """Return the fixed cost of a transfer and the time of one block of `pieces` pieces, both in seconds.

    Raises InputError for a bandwidth that is not above 0 and finite, or a negative cost.
    """
    name = " to ".join(key)
    bandwidth = constants.bandwidth_bytes_per_s
    if not 0 < bandwidth < np.inf:
        raise InputError(f"link {name}: given a bandwidth of {bandwidth} bytes/s, expected a number above 0")
    for what, value in (("latency", constants.latency_s), ("descriptor", constants.descriptor_s)):
        if not 0 <= value < np.inf:
            raise InputError(f"link {name}: given a {what} cost of {value} s, expected 0 or more")
    return constants.latency_s, pieces * constants.descriptor_s + block_bytes / bandwidth


def make_links(
    constants: Mapping[tuple[str, str], LinkConstants],
    has_tier: Sequence[bool],
    block_bytes: float,
    pieces_per_block: int,
    wiring: Wiring,
) -> Links:
    """Make the links of a cluster, idle.

    constants: by (source tier, target tier) of a hop; hbm to hbm is the hand-off. has_tier: (4,) whether instances have
    each tier. Raises InputError for an impossible constant, or a link that the tiers need and that is not there.
    """
    nic_times = (0.0, 0.0)
    if wiring.has_handoff:
        part_bytes = block_bytes * wiring.share
        nic_times = block_time(HANDOFF, needed(constants, HANDOFF), part_bytes, pieces_per_block)
    state = _record(wiring.instance_count, nic_times)
    pairs = [(s, t) for s, t in HOPS if has_tier[s] and has_tier[t]]
    full = {}
    for source, target in pairs:
        times = [_hop_time(constants, key, block_bytes, pieces_per_block, wiring) for key in HOPS[source, target]]
        state.latency_s[source, target] = sum(latency_s for latency_s, _ in times)
        state.block_s[source, target] = max(block_s for _, block_s in times)
        full[source, target] = block_bytes / state.block_s[source, target]
    state.is_shared, networks = _networks(constants, wiring, full)
    return Links(state, networks, bool(state.is_shared))


def _networks(
    constants: Mapping[tuple[str, str], LinkConstants], wiring: Wiring, full: Mapping[tuple[int, int], float]
) -> tuple[bool, list[Network]]:
    """Make one network of all instances if they share anything, else one of each."""

    def streams(resources: Resources, instance: int) -> list[Stream]:
        crossed = [resources.crossed(instance, hops) if pair in full else [] for pair, hops in HOPS.items()]
        return [Stream(full.get(pair, 1.0), some) for pair, some in zip(HOPS, crossed, strict=True)]

    instances = range(wiring.instance_count)
    together = Resources(constants, wiring)
    all_streams = [stream for i in instances for stream in streams(together, i)]
    if together.are_shared:
        return True, [make_network(all_streams, together.capacity)] * wiring.instance_count
    networks = []
    for i in instances:
        own = Resources(constants, wiring)
        networks.append(make_network(streams(own, i), own.capacity))
    return False, networks


def _hop_time(
    constants: Mapping[tuple[str, str], LinkConstants],
    key: tuple[str, str],
    block_bytes: float,
    pieces: int,
    wiring: Wiring,
) -> tuple[float, float]:
    share = wiring.share if key in PER_GPU else 1.0
    return block_time(key, needed(constants, key), block_bytes * share, pieces)


_NUMBERS: list[tuple[Any, ...]] = [
    ("is_shared", np.bool_),
    ("latency_s", np.float64, (TIER_COUNT, TIER_COUNT)),
    ("block_s", np.float64, (TIER_COUNT, TIER_COUNT)),
]


def _record(instance_count: int, nic_times: tuple[float, float] = (0.0, 0.0)) -> LinkState:
    pairs = np.full((TIER_COUNT, TIER_COUNT), NONE, np.int32)
    for k, pair in enumerate(HOPS):
        pairs[pair] = k
    accounts = instance_count * TIER_COUNT * TIER_COUNT * CAUSE_COUNT
    arrays: dict[str, Any] = {
        "pairs": pairs.ravel(),
        "nics": np.tile([0.0, *nic_times], (2 * instance_count, 1)),
        "accounts": np.zeros((accounts, 3)),
        "waiting": np.full((instance_count * STREAMS, 2), NONE, np.int32),
    }
    return make_record(_NUMBERS, arrays)


LINKS_TYPE = typeof(_record(1))


@njit(cache=True)
def _copy_accounts(state: LinkState) -> Floats:
    return _accounts(state).copy()


def accounts_of(state: LinkState) -> Floats:
    """Blocks moved, busy and waiting seconds, (instances, tiers, tiers, causes, 3).

    busy: at full speed; waiting: behind others of the stream, by the speeds at the time.
    """
    return _copy_accounts(state).reshape(-1, len(TIERS), len(TIERS), len(CAUSES), 3)
