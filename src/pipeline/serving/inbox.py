"""What comes back from the engines, in order of time: a heap of the entries of the feed that nobody can know of yet."""

from __future__ import annotations

from typing import Any

from numba import njit

from pipeline.serving.state import Ints

Feed = Any
"""Entries (k,), in the order in which they were simulated; a heap holds their places in it."""


@njit(cache=True)
def _comes_before(feed: Feed, a: int, b: int) -> bool:
    """Whether entry a comes before entry b: by time, kind, instance and row."""
    one, other = feed[a], feed[b]
    if one.time_s != other.time_s:
        return one.time_s < other.time_s
    if one.kind != other.kind:
        return one.kind < other.kind
    if one.instance != other.instance:
        return one.instance < other.instance
    return one.row < other.row


@njit(cache=True)
def push(feed: Feed, heap: Ints, entry: int) -> None:
    """Put an entry into a heap whose last place is free."""
    at = heap.size - 1
    while at > 0 and _comes_before(feed, entry, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = entry


@njit(cache=True)
def pop(feed: Feed, heap: Ints) -> int:
    """Take the first entry out of a heap, and leave its last place free."""
    first, moved, count = heap[0], heap[heap.size - 1], heap.size - 1
    at = 0
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and _comes_before(feed, heap[below + 1], heap[below]):
            below += 1
        if not _comes_before(feed, heap[below], moved):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = moved
    return first
