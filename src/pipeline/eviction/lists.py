"""Doubly linked lists in the rows of `links`, each around a head row; the oldest row is evicted first.

Columns PREV and NEXT of any row; a row outside every list has NEXT = OUT.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.eviction.base import PolicyState, links

Links = NDArray[np.int32]

PREV, NEXT = 0, 1
OUT = -1


@njit(cache=True)
def make_lists(a: PolicyState, head_count: int) -> None:
    """Make the last `head_count` rows heads of empty lists, and put every other row outside."""
    rows = links(a)
    first_head = rows.shape[0] - head_count
    rows[:first_head, NEXT] = OUT
    for head in range(first_head, rows.shape[0]):
        make_empty(rows, head)


@njit(cache=True)
def make_empty(rows: Links, head: int) -> None:
    """Make `head` the head of an empty list."""
    rows[head, PREV] = head
    rows[head, NEXT] = head


@njit(cache=True)
def is_linked(rows: Links, row: int) -> bool:
    """Say whether `row` is in a list."""
    return rows[row, NEXT] != OUT


@njit(cache=True)
def is_empty(rows: Links, head: int) -> bool:
    """Say whether the list of `head` is empty."""
    return rows[head, NEXT] == head


@njit(cache=True)
def link_between(rows: Links, before: int, row: int, after: int) -> None:
    """Put `row` between two neighbours."""
    rows[row, PREV] = before
    rows[row, NEXT] = after
    rows[before, NEXT] = row
    rows[after, PREV] = row


@njit(cache=True)
def push_newest(rows: Links, head: int, row: int) -> None:
    """Put `row` at the end that is evicted last."""
    link_between(rows, rows[head, PREV], row, head)


@njit(cache=True)
def push_oldest(rows: Links, head: int, row: int) -> None:
    """Put `row` at the end that is evicted first."""
    link_between(rows, head, row, rows[head, NEXT])


@njit(cache=True)
def unlink(rows: Links, row: int) -> None:
    """Take `row` out of its list."""
    before, after = rows[row, PREV], rows[row, NEXT]
    rows[before, NEXT] = after
    rows[after, PREV] = before
    rows[row, NEXT] = OUT


@njit(cache=True)
def pop_oldest_free(rows: Links, head: int, pins: NDArray[np.int32]) -> int:
    """Take out the oldest block that nobody uses, and those in use before it; -1 if there is none."""
    while not is_empty(rows, head):
        row = rows[head, NEXT]
        unlink(rows, row)
        if pins[row] == 0:
            return int(row)
    return -1


QUEUE = 2
"""Column that says in which of several counted queues a row is: the head of queue q is the q-th row from the end, its
length, parked blocks included, the q-th scalar; 0 for none."""


@njit(cache=True)
def join_queue(a: PolicyState, rows: Links, queue: int, row: int) -> None:
    """Put `row`, which is in no queue, at the newest end of one."""
    rows[row, QUEUE] = queue
    a.state[queue] += 1
    push_newest(rows, rows.shape[0] - queue, row)


@njit(cache=True)
def leave_queue(a: PolicyState, rows: Links, row: int) -> None:
    """Take `row` out of its queue, parked or not."""
    a.state[rows[row, QUEUE]] -= 1
    rows[row, QUEUE] = 0
    if is_linked(rows, row):
        unlink(rows, row)
