"""Headers: numbers and addresses that compiled code finds at one address, which costs nothing to pass.

An array handed to compiled code costs a good part of a microsecond. Whoever makes a header keeps it alive, and the
arrays that it points to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from pipeline.records import address_of, found


def make_header(kind: np.dtype[Any], **values: Any) -> NDArray[Any]:
    """Make one record of `kind`, shape (1,), with the given values; for an array, its address."""
    header = np.zeros(1, kind)
    for name, value in values.items():
        header[name] = address_of(value) if isinstance(value, np.ndarray) else value
    return header


def record_at(kind: np.dtype[Any]) -> Any:
    """Make what finds, in compiled code, the record of `kind` at an address."""
    return found(from_dtype(kind))


def array_at(kind: np.dtype[Any]) -> Any:
    """Make what finds, in compiled code, an array of `kind` at an address, for `carray`."""
    return found(types.CPointer(from_dtype(kind)))


ints_at = array_at(np.dtype(np.int64))
numbers_at = array_at(np.dtype(np.int32))
words_at = array_at(np.dtype(np.uint64))
