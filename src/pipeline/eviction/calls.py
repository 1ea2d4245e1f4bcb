"""Calls of a policy's operations, by address, from compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from pipeline.eviction.base import ON_BLOCK, ON_REMOVE, ON_VICTIM, PolicyFunctions, PolicyState


def _caller(signature: Any) -> Any:
    """Make what calls a C function of `signature`, for compiled code: (address, tuple of arguments) -> result."""

    def type_call(_typing: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            given = cgutils.unpack_tuple(builder, values[1])
            kinds = zip(given, arguments, signature.args, strict=True)
            cast = [context.cast(builder, value, kind, wanted) for value, kind, wanted in kinds]
            takes = [context.get_value_type(kind) for kind in signature.args]
            function = ir.FunctionType(context.get_value_type(signature.return_type), takes)
            return builder.call(builder.inttoptr(values[0], function.as_pointer()), cast)

        return signature.return_type(address, arguments), generate

    return intrinsic(type_call)


def _type_data(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return context.make_array(array)(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


_call_on_block = _caller(ON_BLOCK)
_call_remove = _caller(ON_REMOVE)
_call_victim = _caller(ON_VICTIM)
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
