"""Calls of compiled functions by address, from compiled code.

A function that is called by name is compiled into each of its callers once more. Called by address it is compiled once,
and a caller need not know which one it is. A call costs a few nanoseconds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import intrinsic


def caller(signature: Any) -> Any:
    """Make what calls a C function of `signature`: (address, tuple of arguments) -> result. It must not raise."""

    def type_call(_typing: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            takes = [context.get_value_type(kind) for kind in signature.args]
            function = ir.FunctionType(context.get_value_type(signature.return_type), takes)
            cast = _cast(context, builder, values[1], arguments, signature)
            return builder.call(builder.inttoptr(values[0], function.as_pointer()), cast)

        return signature.return_type(address, arguments), generate

    return intrinsic(type_call)


def raising_caller(signature: Any) -> Any:
    """Make what calls a function that numba has compiled for `signature`, likewise; what it raises goes on up."""

    def type_call(_typing: Any, address: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            convention = context.call_conv
            function = convention.get_function_type(signature.return_type, signature.args)
            callee = builder.inttoptr(values[0], function.as_pointer())
            cast = _cast(context, builder, values[1], arguments, signature)
            status, result = convention.call_function(builder, callee, signature.return_type, signature.args, cast)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return result

        return signature.return_type(address, arguments), generate

    return intrinsic(type_call)


def _cast(context: Any, builder: Any, values: Any, kinds: Any, signature: Any) -> list[Any]:
    given = cgutils.unpack_tuple(builder, values)
    return [
        context.cast(builder, value, kind, wanted)
        for value, kind, wanted in zip(given, kinds, signature.args, strict=True)
    ]


def compiled_address(function: Any, signature: Any) -> int:
    """Compile an `@njit` function for `signature`; return its address, for a `raising_caller`.

    The code stays for the life of the process.
    """
    function.compile(signature)
    made = function.overloads[signature.args]
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))
