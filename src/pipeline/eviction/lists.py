"""Doubly linked lists in the rows of `links`, each around a head row: the oldest is evicted first.

Columns PREV and NEXT of any row; a row outside every list has NEXT = OUT.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Links = NDArray[np.int32]

PREV, NEXT = 0, 1
OUT = -1


@njit(cache=True)
def make_empty(links: Links, head: int) -> None:
    """Make `head` an empty list."""
    links[head, PREV] = head
    links[head, NEXT] = head


@njit(cache=True)
def is_linked(links: Links, row: int) -> bool:
    """Say whether `row` is in a list."""
    return links[row, NEXT] != OUT


@njit(cache=True)
def oldest(links: Links, head: int) -> int:
    """Return the oldest row of the list; `head` itself if it is empty."""
    return links[head, NEXT]


@njit(cache=True)
def link_between(links: Links, before: int, row: int, after: int) -> None:
    """Put `row` between two neighbours."""
    links[row, PREV] = before
    links[row, NEXT] = after
    links[before, NEXT] = row
    links[after, PREV] = row


@njit(cache=True)
def push_newest(links: Links, head: int, row: int) -> None:
    """Append `row` at the end that is evicted last."""
    link_between(links, links[head, PREV], row, head)


@njit(cache=True)
def push_oldest(links: Links, head: int, row: int) -> None:
    """Put `row` at the end that is evicted first."""
    link_between(links, head, row, links[head, NEXT])


@njit(cache=True)
def unlink(links: Links, row: int) -> None:
    """Take `row` out of its list."""
    before, after = links[row, PREV], links[row, NEXT]
    links[before, NEXT] = after
    links[after, PREV] = before
    links[row, NEXT] = OUT


@njit(cache=True)
def pop_free(links: Links, head: int, pins: NDArray[np.int32]) -> int:
    """Take out the oldest block that nobody uses; those in use before it leave the list too. -1 if there is none."""
    row = links[head, NEXT]
    while row != head:
        unlink(links, row)
        if pins[row] == 0:
            return row
        row = links[head, NEXT]
    return -1
