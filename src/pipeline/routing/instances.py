"""What a router knows of each instance of a pool, as one array that compiled code finds by its address."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from pipeline.records import array_at
from pipeline.spec import InputError
from pipeline.values import Role

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Instances = Any

INSTANCE = np.dtype(
    [
        ("instance_ids", np.int64),
        ("queue_count", np.int64),
        ("running_count", np.int64),
        ("kv_used_tokens", np.int64),
        ("kv_capacity_tokens", np.int64),
        ("in_flight_count", np.int64),
        ("sent_since_poll_count", np.int64),
        ("outstanding_input_tokens", np.int64),
        ("outstanding_output_tokens", np.float64),
        ("matched_tokens", np.int64),
        ("prefill_s_per_token", np.float64),
        ("decode_s_per_token", np.float64),
    ],
    align=True,
)
"""See PoolView, which shows each field of all instances as an array."""

_at = array_at(INSTANCE)


def make_instances(
    role: Role, instance_ids: Ints, kv_capacity_tokens: Ints, prefill_s_per_token: Floats, decode_s_per_token: Floats
) -> Instances:
    """Make what is known of m idle instances, (m,), from constants (m,); those in seconds are the router's own.

    Raises InputError for an empty pool, arrays of unequal length, no KV capacity, and constants that are not durations.
    """
    if not instance_ids.size:
        raise InputError(f"{role} pool: given no instance, expected at least one")
    instances = np.zeros(instance_ids.size, INSTANCE)
    instances["instance_ids"] = instance_ids
    constants = {
        "kv_capacity_tokens": (kv_capacity_tokens, kv_capacity_tokens > 0, "above 0"),
        "prefill_s_per_token": (prefill_s_per_token, _is_duration(prefill_s_per_token), "a finite number, 0 or above"),
        "decode_s_per_token": (decode_s_per_token, _is_duration(decode_s_per_token), "a finite number, 0 or above"),
    }
    for name, (values, good, expected) in constants.items():
        if values.shape != instance_ids.shape:
            raise InputError(f"{role} pool: {name}: given {values.size} for {instance_ids.size} instances")
        if not good.all():
            at = int(np.argmin(good))
            where = f"{role} pool: {name} of instance {instance_ids[at]}"
            raise InputError(f"{where}: given {values[at]}, expected {expected}")
        instances[name] = values
    return instances


def _is_duration(values: Floats) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values >= 0)


@njit(inline="always")
def instances_at(address: int, count: int) -> Instances:
    """View the instances, (count,), of which the first stands at the address."""
    return carray(_at(address), (count,))


@njit(cache=True)
def backlog_s(address: int, count: int, index: int) -> float:
    """Work ahead at the instance in position `index`, as the ledger has it, in seconds of its time."""
    known = instances_at(address, count)[index]
    prefill_s = known.outstanding_input_tokens * known.prefill_s_per_token
    return prefill_s + known.outstanding_output_tokens * known.decode_s_per_token
