"""Queues of rows, linked through the rows themselves: one row stands in at most one.

First in, first out; where rows have ranks, in the order of rank and arrival.
"""

from __future__ import annotations

from numba import njit

from pipeline.serving.state import NONE, Engine, row_at


@njit(cache=True)
def push_back(engine: Engine, rows: int, queue: int, row: int) -> None:
    """Put `row` at the end; the queue is its status."""
    row_at(rows, row).status = queue
    row_at(rows, row).next_row = NONE
    if engine.head[queue] == NONE:
        engine.head[queue] = row
    else:
        row_at(rows, engine.tail[queue]).next_row = row
    engine.tail[queue] = row
    engine.queued_count += 1


@njit(cache=True)
def push_front(engine: Engine, rows: int, queue: int, row: int) -> None:
    """Put `row` before all others; the queue is its status."""
    row_at(rows, row).status = queue
    row_at(rows, row).next_row = engine.head[queue]
    if engine.head[queue] == NONE:
        engine.tail[queue] = row
    engine.head[queue] = row
    engine.queued_count += 1


@njit(cache=True)
def enqueue(engine: Engine, rows: int, queue: int, row: int) -> None:
    """Put `row` where it belongs: at the end, or by its rank before the first that comes after it."""
    before, at = NONE, engine.head[queue]
    while engine.ranks and at != NONE and not comes_before(rows, row, at):
        before, at = at, row_at(rows, at).next_row
    if not engine.ranks or at == NONE:
        push_back(engine, rows, queue, row)
    elif before == NONE:
        push_front(engine, rows, queue, row)
    else:
        row_at(rows, row).status = queue
        row_at(rows, row).next_row = at
        row_at(rows, before).next_row = row
        engine.queued_count += 1


@njit(cache=True)
def comes_before(rows: int, one: int, other: int) -> bool:
    """Say whether a row is to be admitted before another: by rank, then by arrival, at one time by its number."""
    a, b = row_at(rows, one), row_at(rows, other)
    if a.rank != b.rank:
        return a.rank < b.rank
    return a.arrival_s < b.arrival_s or (a.arrival_s == b.arrival_s and one < other)


@njit(cache=True)
def remove(engine: Engine, rows: int, row: int) -> None:
    """Take `row` out of the queue in which it stands."""
    queue = row_at(rows, row).status
    before = NONE
    at = engine.head[queue]
    while at != row:
        before = at
        at = row_at(rows, at).next_row
    if before == NONE:
        engine.head[queue] = row_at(rows, row).next_row
    else:
        row_at(rows, before).next_row = row_at(rows, row).next_row
    if engine.tail[queue] == row:
        engine.tail[queue] = before
    engine.queued_count -= 1
