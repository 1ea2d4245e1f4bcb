"""Links between tiers and between instances: first in, first out, one direction each.

Transfer time = latency + pieces x descriptor_s + bytes / bandwidth. A transfer that crosses two links (SSD to HBM
bounces through DRAM; a hand-off leaves one NIC and enters another) occupies both for the time of the slower one, plus
both latencies, and starts when both are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numba import njit, typeof

from pipeline.hardware.base import LinkConstants
from pipeline.placement.base import CAUSES, KV_HANDOFF
from pipeline.placement.stack import DRAM, HBM, SSD
from pipeline.records import make_record, view_float_table, view_ints
from pipeline.serving.state import NONE, Floats
from pipeline.spec import InputError
from pipeline.values import TIERS

LinkState = np.record
TIER_COUNT, CAUSE_COUNT = len(TIERS), len(CAUSES)

PER_GPU = (("hbm", "dram"), ("dram", "hbm"))
HANDOFF = ("hbm", "hbm")
HOPS = {
    (HBM, DRAM): (("hbm", "dram"),),
    (DRAM, HBM): (("dram", "hbm"),),
    (DRAM, SSD): (("dram", "ssd"),),
    (SSD, DRAM): (("ssd", "dram"),),
    (HBM, SSD): (("hbm", "dram"), ("dram", "ssd")),
    (SSD, HBM): (("ssd", "dram"), ("dram", "hbm")),
}
FREE_AT, LATENCY, PER_BLOCK = range(3)
"""Columns of a link: when it is free again, the fixed cost of a transfer, the time of one block."""
BLOCKS, BUSY, WAIT = range(3)
"""Columns of an account."""


@njit(cache=True)
def _links(state: LinkState) -> Floats:
    return view_float_table(state, state.links_at, state.links_rows, 3)


@njit(cache=True)
def _accounts(state: LinkState) -> Floats:
    return view_float_table(state, state.accounts_at, state.accounts_rows, 3)


@njit(cache=True)
def _account_row(instance: int, source: int, target: int, cause: int) -> int:
    return ((instance * TIER_COUNT + source) * TIER_COUNT + target) * CAUSE_COUNT + cause


@njit(cache=True)
def _times(links: Floats, first: int, second: int, block_count: int, now_s: float) -> tuple[float, float]:
    """When `block_count` blocks would start over one link, or two, and arrive."""
    start_s = max(now_s, links[first, FREE_AT])
    latency_s, blocks_s = links[first, LATENCY], block_count * links[first, PER_BLOCK]
    if second != NONE:
        start_s = max(start_s, links[second, FREE_AT])
        latency_s += links[second, LATENCY]
        blocks_s = max(blocks_s, block_count * links[second, PER_BLOCK])
    return start_s, start_s + (latency_s + blocks_s)


@njit(cache=True)
def arrival_s(state: LinkState, instance: int, source: int, target: int, block_count: int, now_s: float) -> float:
    """When blocks would arrive if their move between two tiers of an instance began now; nothing is moved."""
    path = view_ints(state, state.paths_at, state.paths_rows)
    at = ((instance * TIER_COUNT + source) * TIER_COUNT + target) * 2
    return _times(_links(state), path[at], path[at + 1], block_count, now_s)[1]


@njit(cache=True)
def occupy_path(state: LinkState, first: int, second: int, account_row: int, block_count: int, now_s: float) -> float:
    """Send `block_count` blocks over one link, or two (`second` is not -1); return when they have arrived."""
    links = _links(state)
    start_s, end_s = _times(links, first, second, block_count, now_s)
    links[first, FREE_AT] = end_s
    if second != NONE:
        links[second, FREE_AT] = end_s
    account = _accounts(state)
    account[account_row, BLOCKS] += block_count
    account[account_row, BUSY] += end_s - start_s
    account[account_row, WAIT] += start_s - now_s
    return end_s


@njit(cache=True)
def occupy(
    state: LinkState, instance: int, source: int, target: int, cause: int, block_count: int, now_s: float
) -> float:
    """Move blocks of an instance between two of its tiers; return when they have arrived."""
    path = view_ints(state, state.paths_at, state.paths_rows)
    at = ((instance * TIER_COUNT + source) * TIER_COUNT + target) * 2
    row = _account_row(instance, source, target, cause)
    return occupy_path(state, path[at], path[at + 1], row, block_count, now_s)


@njit(cache=True)
def occupy_handoff(state: LinkState, source_instance: int, instance: int, block_count: int, now_s: float) -> float:
    """Send KV from one instance's NIC to another's; return when it has arrived."""
    nics = view_ints(state, state.nics_at, state.nics_rows)
    row = _account_row(instance, HBM, HBM, KV_HANDOFF)
    return occupy_path(state, nics[2 * source_instance], nics[2 * instance + 1], row, block_count, now_s)


def block_time(key: tuple[str, str], constants: LinkConstants, block_bytes: float, pieces: int) -> tuple[float, float]:
    """Return the fixed cost of a transfer and the time of one block of `pieces` pieces, both in seconds.

    Raises InputError for a bandwidth that is not above 0, or a negative cost.
    """
    name = " to ".join(key)
    bandwidth = constants.bandwidth_bytes_per_s
    if not bandwidth > 0:
        raise InputError(f"link {name}: given a bandwidth of {bandwidth} bytes/s, expected more than 0")
    for what, value in (("latency", constants.latency_s), ("descriptor", constants.descriptor_s)):
        if not 0 <= value < np.inf:
            raise InputError(f"link {name}: given a {what} cost of {value} s, expected 0 or more")
    return constants.latency_s, pieces * constants.descriptor_s + block_bytes / bandwidth


def make_links(
    links: Mapping[tuple[str, str], LinkConstants],
    capacity_blocks: Sequence[int],
    block_bytes: float,
    pieces_per_block: int,
    ranks: int,
    instance_count: int,
    instances_per_node: int,
    has_handoff: bool,
) -> LinkState:
    """Make the links of a cluster, idle.

    links: constants by (source tier, target tier); hbm to hbm is the hand-off. Each of an instance's `ranks` GPUs has
    links of its own between HBM and DRAM and to other instances, over which it moves its share of a block; the links
    to SSD are one per node. Raises InputError for an impossible constant, or a link that the tiers need and that is
    not there.
    """
    rows: list[tuple[float, float, float]] = []
    number: dict[tuple[tuple[str, str], int], int] = {}

    def link(key: tuple[str, str], owner: int, share: float) -> int:
        if key not in links:
            raise InputError(f"link {' to '.join(key)}: no constants given, but the tiers and pools need it")
        if (key, owner) not in number:
            number[key, owner] = len(rows)
            rows.append((0.0, *block_time(key, links[key], block_bytes * share, pieces_per_block)))
        return number[key, owner]

    paths = np.full((instance_count, len(TIERS), len(TIERS), 2), NONE, np.int32)
    nics = np.full((instance_count, 2), NONE, np.int32)
    if capacity_blocks[-1] > 0:
        raise InputError("tiers: given a remote tier, expected none: no link leads there yet")
    for i in range(instance_count):
        for (source, target), hops in HOPS.items():
            if all(capacity_blocks[tier] > 0 for tier in (source, target)):
                for k, key in enumerate(hops):
                    owner, share = (i, 1 / ranks) if key in PER_GPU else (i // instances_per_node, 1.0)
                    paths[i, source, target, k] = link(key, owner, share)
        if has_handoff:
            nics[i] = link(HANDOFF, 2 * i, 1 / ranks), link(HANDOFF, 2 * i + 1, 1 / ranks)
    return _record(rows, paths, nics, instance_count)


def _record(rows: list[tuple[float, float, float]], paths: Any, nics: Any, instance_count: int) -> LinkState:
    accounts = instance_count * len(TIERS) * len(TIERS) * len(CAUSES)
    arrays = {
        "links": np.array(rows or [(0.0, 0.0, 0.0)]),
        "paths": paths.ravel(),
        "nics": nics.ravel(),
        "accounts": np.zeros((accounts, 3)),
    }
    return make_record([("instance_count", np.int64)], arrays)


LINKS_TYPE = typeof(_record([], np.zeros((1, 4, 4, 2), np.int32), np.zeros((1, 2), np.int32), 1))


@njit(cache=True)
def _copy_accounts(state: LinkState) -> Floats:
    return _accounts(state).copy()


def accounts_of(state: LinkState) -> Floats:
    """Blocks moved, busy and waiting seconds, (instances, tiers, tiers, causes, 3)."""
    return _copy_accounts(state).reshape(-1, len(TIERS), len(TIERS), len(CAUSES), 3)
