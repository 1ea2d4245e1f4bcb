"""What an eviction policy is: five compiled functions over the arrays of one tier.

A policy file holds plain `@njit` functions and one Spec class that hands them to `compile_functions`. They become C
callbacks with fixed signatures, so a caller's kernel is compiled once for all policies, cached across processes, and
a call costs about 5 ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, typeof, types
from numpy.typing import NDArray

from pipeline.spec import Spec


class PolicyArrays(NamedTuple):
    """State of a policy in one tier; each policy says what its columns mean. Blocks are numbered 0..n-1.

    links: int32 (n + extra rows, columns): a block's fields lie side by side, in one cache line; the extra rows are
        list heads and the like. scores: float64 (n, columns). state, params: int64 and float64 scalars by position.
    """

    links: NDArray[np.int32]
    scores: NDArray[np.float64]
    state: NDArray[np.int64]
    params: NDArray[np.float64]


class PolicyFunctions(NamedTuple):
    """The five operations. `time_s` is simulated time; a block is named by its number.

    insert(a, block, time_s): the block has become resident in this tier.
    touch(a, block, time_s): a resident block was used.
    release(a, block, time_s): the last user of a resident block let go of it (in HBM only).
    remove(a, block): the block left this tier by other means than eviction (promotion, invalidation).
    victim(a, pins, time_s) -> block: take out and return the next victim; -1 if none can be taken. Blocks with
        pins[block] > 0 are in use: victim takes such a block out of its structure for now ("parks" it) and goes on;
        release brings a parked block back, where the policy would have it. A parked block may be touched or removed.
    """

    insert: Any
    touch: Any
    release: Any
    remove: Any
    victim: Any


def allocate(rows: int, columns: int, score_shape: tuple[int, int] = (1, 1), scalars: int = 16) -> PolicyArrays:
    """Arrays of zeros: `rows` are the blocks plus what else the policy links."""
    return PolicyArrays(
        np.zeros((rows, columns), np.int32),
        np.zeros(score_shape, np.float64),
        np.zeros(scalars, np.int64),
        np.zeros(scalars, np.float64),
    )


ARRAYS_TYPE = typeof(allocate(1, 1))
PINS_TYPE = types.int32[::1]
ON_BLOCK = types.void(ARRAYS_TYPE, types.int64, types.float64)
ON_REMOVE = types.void(ARRAYS_TYPE, types.int64)
ON_VICTIM = types.int64(ARRAYS_TYPE, PINS_TYPE, types.float64)


def compile_functions(
    insert: Callable[..., Any],
    touch: Callable[..., Any],
    release: Callable[..., Any],
    remove: Callable[..., Any],
    victim: Callable[..., Any],
) -> PolicyFunctions:
    """Turn a policy file's `@njit` functions into callbacks with the fixed signatures (compiled once, then cached)."""

    def callback(signature: Any, function: Any) -> Any:
        return cfunc(signature, cache=True)(function.py_func)

    return PolicyFunctions(
        callback(ON_BLOCK, insert),
        callback(ON_BLOCK, touch),
        callback(ON_BLOCK, release),
        callback(ON_REMOVE, remove),
        callback(ON_VICTIM, victim),
    )


class EvictionPolicy(Spec):
    """Decides which block leaves a full tier."""

    def arrays(self, block_count: int, capacity_blocks: int) -> PolicyArrays:
        """Empty state for a tier of `capacity_blocks` out of `block_count` distinct blocks."""
        raise NotImplementedError

    def functions(self) -> PolicyFunctions:
        """The compiled operations."""
        raise NotImplementedError
