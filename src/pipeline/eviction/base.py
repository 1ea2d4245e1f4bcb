"""What an eviction policy is: five compiled functions over the state of one tier.

A policy file holds plain `@njit` functions and one Spec class that hands them to `compile_functions`. They become C
functions with fixed signatures, called by address (calls.py): so a caller's kernel is compiled once for all policies,
cached across processes, and a call costs a few nanoseconds.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import cfunc, njit, typeof, types
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from pipeline.eviction.facts import BlockFacts
from pipeline.records import address_of, floats_at, make_record, small_ints_at, view_float_table, view_int_table
from pipeline.spec import Spec

PolicyState = np.record
SCALARS = 16


class PolicyFunctions(NamedTuple):
    """Addresses of the five operations. `time_s` is simulated time; a block is named by its number, 0..n-1.

    insert(a, block, time_s): the block has become resident in this tier.
    touch(a, block, time_s): a resident block was used.
    release(a, block, time_s): the last user of a resident block let go of it (in HBM only).
    remove(a, block): the block left this tier by other means than eviction (promotion, invalidation).
    victim(a, pins, time_s) -> block: take out and return the next victim; -1 if none can be taken. Blocks with
        pins[block] > 0 are in use: victim takes such a block out of its structure for now ("parks" it) and goes on;
        release brings a parked block back, where the policy would have it. A parked block may be touched or removed.
    """

    insert: int
    touch: int
    release: int
    remove: int
    victim: int


def allocate(
    rows: int, columns: int, score_rows: int = 1, score_columns: int = 1, facts: BlockFacts | None = None
) -> PolicyState:
    """Make the zeroed state of a policy in one tier; the policy says what columns, rows and scalars mean.

    links(a): int32 (rows, columns): the fields of a block lie side by side, in one cache line; rows beyond the blocks
    are list heads and the like. scores(a): float64 (score_rows, score_columns). a.state, a.params: 16 scalars each.
    Of the facts only the addresses are kept: all tiers of all instances share them, and the caller keeps them alive.
    """
    numbers: list[tuple[Any, ...]] = [("state", np.int64, (SCALARS,)), ("params", np.float64, (SCALARS,))]
    numbers += [("use_count", np.int64), ("use_s_address", np.int64), ("tail_blocks_address", np.int64)]
    arrays: dict[str, NDArray[Any]] = {
        "links": np.zeros((rows, columns), np.int32),
        "scores": np.zeros((score_rows, score_columns)),
    }
    a = make_record(numbers, arrays)
    if facts is not None:
        a["use_count"] = facts.use_s.size
        a["use_s_address"], a["tail_blocks_address"] = address_of(facts.use_s), address_of(facts.tail_blocks)
    return a


@njit(cache=True)
def links(a: PolicyState) -> NDArray[np.int32]:
    """View the links, (rows, columns)."""
    return view_int_table(a, a.links_at, a.links_rows, a.links_columns)


@njit(cache=True)
def scores(a: PolicyState) -> NDArray[np.float64]:
    """View the scores, (rows, columns)."""
    return view_float_table(a, a.scores_at, a.scores_rows, a.scores_columns)


@njit(cache=True)
def use_s(a: PolicyState) -> NDArray[np.float64]:
    """View the times of use of all blocks, (m,), where the policy has asked for facts."""
    return carray(floats_at(a.use_s_address), (a.use_count,))


@njit(cache=True)
def tail_blocks(a: PolicyState) -> NDArray[np.int32]:
    """View the blocks that follow at each use, itself included, (m,), where the policy has asked for facts."""
    return carray(small_ints_at(a.tail_blocks_address), (a.use_count,))


STATE_TYPE = typeof(allocate(1, 1))
ON_BLOCK = types.void(STATE_TYPE, types.int64, types.float64)
ON_REMOVE = types.void(STATE_TYPE, types.int64)
ON_VICTIM = types.int64(STATE_TYPE, types.CPointer(types.int32), types.float64)


def compile_functions(insert: Any, touch: Any, release: Any, remove: Any, victim: Any) -> PolicyFunctions:
    """Make C functions of the fixed signatures from a policy file's `@njit` functions (compiled once, then cached)."""
    return PolicyFunctions(
        _compile(ON_BLOCK, insert).address,
        _compile(ON_BLOCK, touch).address,
        _compile(ON_BLOCK, release).address,
        _compile(ON_REMOVE, remove).address,
        _compile(ON_VICTIM, victim).address,
    )


@cache  # which also keeps the code behind the address for the life of the process
def _compile(signature: Any, function: Any) -> Any:
    return cfunc(signature, cache=True)(function.py_func)


class EvictionPolicy(Spec):
    """Decides which block leaves a full tier.

    needs_facts: whether `state` wants to be given what is known of the trace; else it costs nothing to make.
    """

    needs_facts: ClassVar[bool] = False

    def state(self, block_count: int, capacity_blocks: int, facts: BlockFacts | None = None) -> PolicyState:
        """Empty state for a tier of `capacity_blocks` out of `block_count` distinct blocks.

        facts: of at least these blocks; whoever makes the state keeps them alive.
        """
        raise NotImplementedError

    def functions(self) -> PolicyFunctions:
        """The compiled operations."""
        raise NotImplementedError


def required(facts: BlockFacts | None, block_count: int) -> BlockFacts:
    """Return the facts; raise ValueError without them, or for too few blocks: compiled code would not notice."""
    if facts is None or facts.parent.size < block_count:
        given = "none" if facts is None else f"facts of {facts.parent.size} blocks"
        raise ValueError(f"facts: given {given}, expected facts of {block_count} blocks")
    return facts
