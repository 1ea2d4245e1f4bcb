"""Calls of a policy's operations, by address, from compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from pipeline.by_address import caller
from pipeline.eviction.base import ON_BLOCK, ON_REMOVE, ON_VICTIM, PolicyFunctions, PolicyState


def _type_data(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return context.make_array(array)(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


_call_on_block = caller(ON_BLOCK)
_call_remove = caller(ON_REMOVE)
_call_victim = caller(ON_VICTIM)
_data: Any = intrinsic(_type_data)


@njit(cache=True)
def insert(functions: PolicyFunctions, a: PolicyState, block: int, time_s: float) -> None:
    """Tell the policy that the block has become resident."""
    _call_on_block(functions.insert, (a, block, time_s))


@njit(cache=True)
def touch(functions: PolicyFunctions, a: PolicyState, block: int, time_s: float) -> None:
    """Tell the policy that a resident block was used."""
    _call_on_block(functions.touch, (a, block, time_s))


@njit(cache=True)
def release(functions: PolicyFunctions, a: PolicyState, block: int, time_s: float) -> None:
    """Tell the policy that the last user let go of a resident block."""
    _call_on_block(functions.release, (a, block, time_s))


@njit(cache=True)
def remove(functions: PolicyFunctions, a: PolicyState, block: int) -> None:
    """Tell the policy that a resident block has left."""
    _call_remove(functions.remove, (a, block))


@njit(cache=True)
def victim(functions: PolicyFunctions, a: PolicyState, pins: NDArray[np.int32], time_s: float) -> int:
    """Have the policy take out a block b with pins[b] == 0; -1 if there is none."""
    return int(_call_victim(functions.victim, (a, _data(pins), time_s)))
