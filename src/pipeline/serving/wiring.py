"""How the links of a cluster are wired: over which hops a transfer goes, and what it shares there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.hardware.base import LinkConstants
from pipeline.placement.state import DRAM, HBM, REMOTE, SSD
from pipeline.spec import InputError

HANDOFF = ("hbm", "hbm")
DOWN, UP, WRITE, READ = ("hbm", "dram"), ("dram", "hbm"), ("dram", "ssd"), ("ssd", "dram")
OUT, IN = ("dram", "remote"), ("remote", "dram")
PER_GPU = (DOWN, UP, OUT, IN)
"""Of which each GPU has one of its own; the drives are a node's."""
HOPS = {
    (DRAM, HBM): (UP,),
    (SSD, HBM): (READ, UP),
    (REMOTE, HBM): (IN, UP),
    (HBM, DRAM): (DOWN,),
    (HBM, SSD): (DOWN, WRITE),
    (HBM, REMOTE): (DOWN, OUT),
    (DRAM, SSD): (WRITE,),
    (SSD, DRAM): (READ,),
    (DRAM, REMOTE): (OUT,),
    (REMOTE, DRAM): (IN,),
    (SSD, REMOTE): (READ, OUT),
    (REMOTE, SSD): (IN, WRITE),
}
"""Pairs of tiers in the order of an instance's streams, those that use HBM first."""
STREAMS, HBM_STREAMS = len(HOPS), 6


class LinkLimits(NamedTuple):
    """What links share, in bytes per second; None where it does not bind or is not known.

    both_ways: a GPU's link to DRAM, in both directions together. switch: the GPUs of a switch together, each way;
    gpus_per_switch: how many. host_dram: the DRAM of a node, reads and writes. pool: the remote pool, for all.
    """

    both_ways_bytes_per_s: float | None = None
    switch_bytes_per_s: float | None = None
    gpus_per_switch: int = 1
    host_dram_bytes_per_s: float | None = None
    pool_bytes_per_s: float | None = None


NO_LIMITS = LinkLimits()


class Wiring(NamedTuple):
    """How a cluster is put together.

    share: part of a block that each GPU of an instance moves: 1/ranks where KV heads are divided among them.
    """

    ranks: int
    share: float
    instance_count: int
    instances_per_node: int
    has_handoff: bool
    limits: LinkLimits = NO_LIMITS


def needed(constants: Mapping[tuple[str, str], LinkConstants], key: tuple[str, str]) -> LinkConstants:
    """Give the constants of a hop; raise InputError if there are none."""
    if key not in constants:
        raise InputError(f"link {' to '.join(key)}: no constants given, but the tiers and pools need it")
    return constants[key]


class Resources:
    """What the streams of a cluster cross, each resource with a number from when it is first met."""

    def __init__(self, constants: Mapping[tuple[str, str], LinkConstants], wiring: Wiring) -> None:
        self._constants, self._wiring = constants, wiring
        self._number: dict[tuple[str, int], int] = {}
        self._user: dict[int, int] = {}
        self.capacity: list[float] = []
        self.are_shared = False

    def crossed(self, instance: int, hops: Sequence[tuple[str, str]]) -> list[tuple[int, float]]:
        """Numbers of the resources that a stream of an instance crosses, and how often each byte does."""
        often: dict[int, float] = {}
        for hop in hops:
            for key, capacity, times in self._of_hop(instance, hop):
                if capacity < np.inf:
                    number = self._numbered(key, capacity, instance)
                    often[number] = often.get(number, 0.0) + times
        return list(often.items())

    def _numbered(self, key: tuple[str, int], capacity: float, instance: int) -> int:
        if key not in self._number:
            self._number[key] = len(self.capacity)
            self.capacity.append(capacity)
        number = self._number[key]
        self.are_shared |= self._user.setdefault(number, instance) != instance
        return number

    def _of_hop(self, instance: int, hop: tuple[str, str]) -> list[tuple[tuple[str, int], float, float]]:
        """Key, capacity in bytes per second, and how often a byte crosses it."""
        wiring, limits, name = self._wiring, self._wiring.limits, " to ".join(hop)
        bandwidth, node = needed(self._constants, hop).bandwidth_bytes_per_s, instance // wiring.instances_per_node
        moved = wiring.ranks * wiring.share if hop in PER_GPU else 1.0
        found = [(("dram of node", node), _times(limits.host_dram_bytes_per_s, 1.0), moved)]
        if hop not in PER_GPU:
            return [*found, ((name, node), bandwidth, 1.0)]
        found.append(((name, instance), wiring.ranks * bandwidth, moved))
        if hop in (OUT, IN):
            return [*found, (("pool", 0), _times(limits.pool_bytes_per_s, 1.0), 1.0)]
        per_switch = max(limits.gpus_per_switch // wiring.ranks, 1)
        switches = max(wiring.ranks / limits.gpus_per_switch, 1.0)
        found.append(((f"switch, {name}", instance // per_switch), _times(limits.switch_bytes_per_s, switches), moved))
        return [*found, (("both ways", instance), _times(limits.both_ways_bytes_per_s, wiring.ranks), moved)]


def _times(limit: float | None, count: float) -> float:
    return np.inf if limit is None else limit * count
