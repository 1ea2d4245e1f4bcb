"""Load or recompute: from which prefix length on a tier gives KV back sooner than the GPU computes it again.

Loading a prefix of n tokens takes t0 + n k / B; computing it takes what a prefill without any hits takes longer than
one that has to compute but the last block. In the linear case that is the rule of thumb: loading wins if B exceeds
k x prefill rate, from t0 / (1 / rate - k / B) on, where each of N that share a link has B / N. They are taken to
compute on GPUs of their own: N on one GPU would share its time as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.hardware.base import LinkConstants
from pipeline.spec import Count, Positive, Spec

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SHARERS = (1, 2, 4, 8)
SHORTEST_TOKENS = 256


class Hop(NamedTuple):
    """A link on the way up; per GPU it carries a rank's share of a block, else all of it."""

    source: str
    target: str
    is_per_gpu: bool


HOPS: Mapping[str, Sequence[Hop]] = {
    "dram": (Hop("dram", "hbm", True),),
    "ssd": (Hop("ssd", "dram", False), Hop("dram", "hbm", True)),
    "remote": (Hop("remote", "dram", True), Hop("dram", "hbm", True)),
}
"""The way into HBM from each tier below it."""


class Setup(Spec):
    """What of model and engine decides between loading and computing.

    block_bytes: KV of a block, counted once; rank_share: part of it that each rank loads. pieces_per_block: contiguous,
    on one rank. longest_tokens: longest prompt
    plus output. running_count, context_tokens: the batch beside which a prefill is timed too; 0 running for none.
    """

    tensor_parallel: Count
    block_tokens: Count
    block_bytes: Positive
    rank_share: Positive
    pieces_per_block: Count
    max_batched_tokens: Count
    longest_tokens: Count
    running_count: int = Field(ge=0)
    context_tokens: int = Field(ge=0)

    @property
    def prefix_blocks(self) -> Ints:
        """Every length of a prefix, (n,) blocks, that leaves room for one block of prompt and a token of output."""
        return np.arange(1, (self.longest_tokens - 1) // self.block_tokens, dtype=np.int64)

    @property
    def batches(self) -> list[int]:
        """Running requests beside which a prefill is timed: none, and a batch that leaves room for it."""
        return sorted({0, self.running_count if self.running_count < self.max_batched_tokens else 0})


@dataclass(frozen=True)
class Way:
    """Links from a tier to HBM for one transfer at a time: the slowest counts, with the latencies of all.

    bytes_per_block, descriptor_s_per_block and bandwidth_bytes_per_s are of the slowest.
    """

    latency_s: float
    bytes_per_block: float
    descriptor_s_per_block: float
    bandwidth_bytes_per_s: float

    def load_s(self, blocks: Any, sharers: int) -> Any:
        """Seconds until `blocks` blocks are there, each of `sharers` transfers having its share of the links."""
        block_s = self.descriptor_s_per_block + self.bytes_per_block / self.bandwidth_bytes_per_s
        return self.latency_s + sharers * blocks * block_s

    def break_even_bytes_per_s(self, blocks: int, sharers: int, recompute_s: float) -> float:
        """Bandwidth of the slowest link with which loading takes `recompute_s`; infinite where none is enough."""
        left_s = (recompute_s - self.latency_s) / (sharers * blocks) - self.descriptor_s_per_block
        return self.bytes_per_block / left_s if left_s > 0 else np.inf


def way_of(hops: Sequence[Hop], links: Mapping[tuple[str, str], LinkConstants], setup: Setup) -> Way:
    """Put links together, each of which moves its share of a block (see `serving.link`)."""
    ways = []
    for hop in hops:
        constants = links[hop.source, hop.target]
        share = setup.rank_share if hop.is_per_gpu else 1.0
        descriptors_s = setup.pieces_per_block * constants.descriptor_s
        size = share * setup.block_bytes
        ways.append(Way(constants.latency_s, size, descriptors_s, constants.bandwidth_bytes_per_s))
    slowest = max(ways, key=lambda way: way.load_s(1, 1) - way.latency_s)
    latency_s = sum(way.latency_s for way in ways)
    return Way(latency_s, slowest.bytes_per_block, slowest.descriptor_s_per_block, slowest.bandwidth_bytes_per_s)


def longest_run(wins: NDArray[np.bool_]) -> tuple[int, int] | None:
    """First and last place of the longest run of true values, the last of equal ones; None where there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], wins, [False])).astype(np.int8)))
    starts, stops = edges[::2], edges[1::2]
    if not starts.size:
        return None
    best = starts.size - 1 - int(np.argmax((stops - starts)[::-1]))
    return int(starts[best]), int(stops[best]) - 1


def break_even_rows(
    links: Mapping[tuple[str, str], LinkConstants],
    setup: Setup,
    recompute: Mapping[int, tuple[Floats, NDArray[np.bool_]]],
    hops: Mapping[str, Sequence[Hop]] = HOPS,
    sharers: Sequence[int] = SHARERS,
) -> Iterator[dict[str, Any]]:
    """Yield rows of table break_even, less the columns that name the setup.

    recompute: by running requests, the time to compute each length in setup.prefix_blocks, and whether it lies outside
    the profiled range. A tier whose links have no constants has no rows. Lengths double from SHORTEST_TOKENS up to the
    longest prefix, in whole blocks; the ends of the range in which loading wins stand among them.
    """
    if not setup.prefix_blocks.size:
        return
    for tier, path in hops.items():
        if all((hop.source, hop.target) in links for hop in path):
            way = way_of(path, links, setup)
            for running, times in recompute.items():
                for count in sharers:
                    for row in _rows(setup, *times, way, count):
                        yield {"tier": tier, "sharer_count": count, "running_count": running} | row


def _rows(
    setup: Setup, added_s: Floats, is_outside: NDArray[np.bool_], way: Way, sharers: int
) -> Iterator[dict[str, Any]]:
    """Rows of one tier, number of sharers and batch."""
    blocks = setup.prefix_blocks
    load_s = way.load_s(blocks, sharers)
    run = longest_run(load_s < added_s)
    ends = [None, None] if run is None else [int(blocks[at]) * setup.block_tokens for at in run]
    for at in sorted({*_shown(setup, blocks), *(run or ())}):
        needed = way.break_even_bytes_per_s(int(blocks[at]), sharers, float(added_s[at]))
        yield {
            "prefix_tokens": int(blocks[at]) * setup.block_tokens,
            "load_s": float(load_s[at]),
            "recompute_s": float(added_s[at]),
            "bandwidth_bytes_per_s": way.bandwidth_bytes_per_s,
            "break_even_bytes_per_s": needed if np.isfinite(needed) else None,
            "is_extrapolated": bool(is_outside[at]),
            "load_from_tokens": ends[0],
            "load_to_tokens": ends[1],
        }


def _shown(setup: Setup, blocks: Ints) -> Iterator[int]:
    """Places of the lengths that are always given."""
    tokens = SHORTEST_TOKENS
    while tokens < blocks[-1] * setup.block_tokens:
        yield max(tokens // setup.block_tokens, 1) - 1
        tokens *= 2
    yield blocks.size - 1
