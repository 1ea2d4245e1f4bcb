"""Records: numbers and arrays of any length that compiled code passes around as one pointer.

A tuple of arrays costs two reference counts per array and call, ten times the work of a list operation. A record is
one numpy structured scalar whose memory goes on with its arrays; compiled functions get a pointer and make views.
A record is used in place: copying it copies the numbers but not its arrays.

A header is the same for arrays that stand elsewhere: numbers and addresses. Handing an array over from Python costs a
good part of a microsecond, an address nothing. Whoever makes a header keeps it alive, and what it points to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numba import from_dtype, njit, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

CACHE_LINE_BYTES = 64


def make_record(numbers: list[tuple[Any, ...]], arrays: Mapping[str, NDArray[Any]]) -> np.record:
    """Make a record of zeroed `numbers` (numpy field descriptions) and copies of one- or two-dimensional `arrays`.

    An array `x` is found through the fields x_at (bytes from the start), x_rows and x_columns.
    """
    shapes = tuple((name, array.shape, array.dtype) for name, array in arrays.items())
    header, places, end = _layout(tuple(numbers), shapes)
    memory = np.zeros(end + CACHE_LINE_BYTES, np.uint8)
    memory = memory[-memory.ctypes.data % CACHE_LINE_BYTES :][:end]
    record: np.record = memory[: header.itemsize].view(header).view(np.recarray)[0]
    record["address"] = memory.ctypes.data
    for (name, shape, kind), place in zip(shapes, places, strict=True):
        np.ndarray(shape, kind, memory.data, place)[...] = arrays[name]
        record[f"{name}_at"] = place
        record[f"{name}_rows"] = shape[0]
        record[f"{name}_columns"] = shape[1] if len(shape) == 2 else 1
    return record


@lru_cache
def _layout(
    numbers: tuple[tuple[Any, ...], ...], shapes: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
) -> tuple[np.dtype[Any], list[int], int]:
    """Fields of a record, where each array starts, and where the last one ends."""
    fields = [(f"{name}_{part}", np.int64) for name, _, _ in shapes for part in ("at", "rows", "columns")]
    header = np.dtype([*numbers, *fields, ("address", np.int64)], align=True)
    places, end = [], _aligned(header.itemsize)
    for _, shape, kind in shapes:
        places.append(end)
        end = _aligned(end + math.prod(shape) * kind.itemsize)
    return header, places, end


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def _type_pointer(_typing: Any, record: Any, offset: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        start = builder.ptrtoint(args[0], context.get_value_type(types.int64))
        return builder.inttoptr(builder.add(start, args[1]), context.get_value_type(types.voidptr))

    return types.voidptr(record, offset), generate


# Compiled code only: the pointer to a number of bytes after the start of a record.
_pointer: Any = intrinsic(_type_pointer)


@njit(cache=True)
def view_bytes(record: np.record, at: int, rows: int) -> NDArray[np.uint8]:
    """View an array of a record, shape (rows,); valid while the record lives."""
    return carray(_pointer(record, at), (rows,), np.uint8)


@njit(cache=True)
def view_ints(record: np.record, at: int, rows: int) -> NDArray[np.int32]:
    """View an array of a record, shape (rows,); valid while the record lives."""
    return carray(_pointer(record, at), (rows,), np.int32)


@njit(cache=True)
def view_floats(record: np.record, at: int, rows: int) -> NDArray[np.float64]:
    """View an array of a record, shape (rows,); valid while the record lives."""
    return carray(_pointer(record, at), (rows,), np.float64)


@njit(cache=True)
def view_int_table(record: np.record, at: int, rows: int, columns: int) -> NDArray[np.int32]:
    """View an array of a record, shape (rows, columns); valid while the record lives."""
    return carray(_pointer(record, at), (rows, columns), np.int32)


@njit(cache=True)
def view_float_table(record: np.record, at: int, rows: int, columns: int) -> NDArray[np.float64]:
    """View an array of a record, shape (rows, columns); valid while the record lives."""
    return carray(_pointer(record, at), (rows, columns), np.float64)


def found(kind: Any) -> Any:
    """Make what finds, in compiled code, the value of a pointer type at an address."""

    def type_found(_typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(kind))

        return kind(address), generate

    return intrinsic(type_found)


def record_at(kind: np.dtype[Any]) -> Any:
    """Make what finds, in compiled code, the record of `kind` at an address."""
    return found(from_dtype(kind))


def array_at(kind: np.dtype[Any]) -> Any:
    """Make what finds, in compiled code, an array of `kind` at an address, for `carray`."""
    return found(types.CPointer(from_dtype(kind)))


ints_at = array_at(np.dtype(np.int64))
small_ints_at = array_at(np.dtype(np.int32))
floats_at = array_at(np.dtype(np.float64))
bytes_at = array_at(np.dtype(np.uint8))


def make_header(kind: np.dtype[Any], **values: Any) -> NDArray[Any]:
    """Make one record of `kind`, shape (1,), with the given values; for an array, its address."""
    header = np.zeros(1, kind)
    for name, value in values.items():
        header[name] = address_of(value) if isinstance(value, np.ndarray) else value
    return header


def address_of(memory: np.record | NDArray[Any]) -> int:
    """Where the memory of a record or an array begins; whoever uses the address keeps it alive."""
    return int(memory["address"]) if isinstance(memory, np.record) else memory.ctypes.data
