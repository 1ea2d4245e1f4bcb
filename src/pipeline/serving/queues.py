"""First-in-first-out queues of rows, linked through the rows themselves: one row stands in at most one."""

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
