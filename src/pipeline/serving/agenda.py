"""Whose turn is next: a binary heap of the instances of a world by when something happens there, then by number."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.serving.packed import engine_at, network_at
from pipeline.serving.state import Ints

ENGINE, OWN_NETWORK = range(2)
"""Columns of a world: addresses of the engines, and of their networks, 0 where it is one for all."""


@njit(cache=True)
def clock_s(world: Ints, i: int) -> float:
    """When the next step of instance i starts, or something that it waits for may arrive in a network of its own."""
    own, next_s = world[i, OWN_NETWORK], engine_at(world[i, ENGINE]).clock_s
    return next_s if own == 0 else min(next_s, network_at(own).look_s)


@njit(cache=True)
def fill(world: Ints, heap: Ints) -> None:
    """Order all instances."""
    for i in range(heap.size):
        heap[i] = i
    for k in range(heap.size // 2 - 1, -1, -1):
        settle(world, heap, k)


@njit(cache=True)
def settle(world: Ints, heap: Ints, k: int) -> None:
    """Move what stands at place k down to where it belongs."""
    moved = heap[k]
    moved_s = clock_s(world, moved)
    while True:
        child = 2 * k + 1
        if child >= heap.size:
            break
        child_s = clock_s(world, heap[child])
        if child + 1 < heap.size:
            other_s = clock_s(world, heap[child + 1])
            if other_s < child_s or (other_s == child_s and heap[child + 1] < heap[child]):
                child, child_s = child + 1, other_s
        if moved_s < child_s or (moved_s == child_s and moved < heap[child]):
            break
        heap[k] = heap[child]
        k = child
    heap[k] = moved


@njit(cache=True)
def second_s(world: Ints, heap: Ints) -> float:
    """When the next thing happens at all but the first instance."""
    found_s = np.inf
    for k in range(1, min(heap.size, 3)):
        found_s = min(found_s, clock_s(world, heap[k]))
    return found_s
