"""Random: evict any block that nobody uses, each as likely as the others.

Draw number n is a hash of the seed and n (see mixing.py): the same whatever else is simulated.
Tiers and instances draw the same numbers, from different blocks.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import Field

from pipeline.eviction.base import EvictionPolicy, PolicyFunctions, PolicyState, allocate, compile_functions, links
from pipeline.eviction.facts import BlockFacts
from pipeline.eviction.lists import OUT
from pipeline.mixing import GOLDEN_GAMMA, mixed
from pipeline.spec import Seed

# Columns of `links`: block by place, and place by block. Blocks fill the places 0..COUNT-1 without gaps.
BLOCK, PLACE = 0, 1
COLUMNS = 2
COUNT, DRAWS, SEED = 0, 1, 2


@njit(cache=True)
def _draw(a: PolicyState) -> int:
    """Draw a place below COUNT from the upper 32 bits of the hash."""
    a.state[DRAWS] += 1
    word = mixed(np.uint64(a.state[SEED]) + np.uint64(a.state[DRAWS]) * GOLDEN_GAMMA)
    return int(((word >> np.uint64(32)) * np.uint64(a.state[COUNT])) >> np.uint64(32))


@njit(cache=True)
def _take_out(a: PolicyState, block: int) -> None:
    """Take the block out; the one at the last place takes its place."""
    rows = links(a)
    a.state[COUNT] -= 1
    last = rows[a.state[COUNT], BLOCK]
    rows[rows[block, PLACE], BLOCK] = last
    rows[last, PLACE] = rows[block, PLACE]
    rows[block, PLACE] = OUT


@njit(cache=True)
def _add(a: PolicyState, block: int) -> None:
    rows = links(a)
    rows[a.state[COUNT], BLOCK] = block
    rows[block, PLACE] = a.state[COUNT]
    a.state[COUNT] += 1


@njit
def insert(a: PolicyState, block: int, _time_s: float) -> None:
    """Add the block to those drawn from."""
    _add(a, block)


@njit
def touch(_a: PolicyState, _block: int, _time_s: float) -> None:
    """Change nothing: use does not count."""


@njit
def release(a: PolicyState, block: int, _time_s: float) -> None:
    """Add a parked block again."""
    if links(a)[block, PLACE] == OUT:
        _add(a, block)


@njit
def remove(a: PolicyState, block: int) -> None:
    """Forget the block."""
    if links(a)[block, PLACE] != OUT:
        _take_out(a, block)


@njit
def victim(a: PolicyState, pins: NDArray[np.int32], _time_s: float) -> int:
    """Draw until a block comes up that nobody uses, and take it out; those in use are parked: each comes up once."""
    rows = links(a)
    while a.state[COUNT] > 0:
        block = rows[_draw(a), BLOCK]
        _take_out(a, block)
        if pins[block] == 0:
            return int(block)
    return -1


class Random(EvictionPolicy):
    """Uniform over the blocks that nobody uses; what any policy must beat."""

    seed: Seed = Field(description="of the draws; not that of the study, so that every trace meets the same ones")

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:  # noqa: ARG002
        """Make an empty set."""
        a = allocate(block_count + 1, COLUMNS)
        _put_all_out(a)
        a.state[SEED] = self.seed
        return a

    def functions(self) -> PolicyFunctions:
        """Compile the five operations."""
        return compile_functions(insert, touch, release, remove, victim)


@njit(cache=True)
def _put_all_out(a: PolicyState) -> None:
    links(a)[:, PLACE] = OUT
