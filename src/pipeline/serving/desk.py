"""The compiled part of dispatch: reading what comes back, polling, and booking a decision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numba.np.numpy_support import carray

from pipeline.records import array_at, ints_at, record_at
from pipeline.routing import book
from pipeline.routing.instances import backlog_s
from pipeline.serving import world
from pipeline.serving.inbox import pop, push
from pipeline.serving.state import COMPLETED, ENTRY, IN_BATCH, KV_BLOCKS, QUEUED, STATES, Ints, row_at

REQUEST = np.dtype(
    [("input_tokens", np.int64), ("output_tokens", np.int64), ("first_block", np.int64), ("end_block", np.int64)],
    align=True,
)
"""A request; the blocks of its prompt stand from first_block to end_block in the trace's block ids."""

POOL = np.dtype([("book", np.int64), ("first", np.int64), ("count", np.int64), ("role", np.int64)], align=True)
"""Address of the router's book; the instances, `count` from `first` on; index into ROLES."""

DECISION = np.dtype(
    [
        ("request", np.int64),
        ("role", np.int64),
        ("instance", np.int64),
        ("chosen_match_tokens", np.int64),
        ("best_match_tokens", np.int64),
        ("estimated_backlog_s", np.float64),
        ("snapshot_age_s", np.float64),
    ],
    align=True,
)
"""See scenario.Decisions."""

DESK = np.dtype(
    [
        # Addresses of the engines' world (instance_count, world_columns), rows, and feed, in which fed (1,) entries
        # stand; of all REQUEST, POOL and DECISION; and of the trace's block ids.
        *((name, np.int64) for name in ("world", "rows", "feed", "fed", "requests", "pools", "decisions", "block_ids")),
        *((name, np.int64) for name in ("instance_count", "world_columns", "request_count", "pool_count")),
        # Given. streams: the books drain on the stream.
        ("block_tokens", np.int64),
        ("poll_interval_s", np.float64),
        ("streams", np.bool_),
        # Progress. unheard: address of a heap of what lies in the future, of the read_count entries read; ended: of the
        # requests of whose end the last `prepare` heard.
        ("unheard", np.int64),
        ("unheard_count", np.int64),
        ("read_count", np.int64),
        ("ended", np.int64),
        ("decision_count", np.int64),
        ("poll_number", np.int64),
        ("poll_s", np.float64),
        ("now_s", np.float64),
    ],
    align=True,
)

Desk = Any
REFUSED = -1
_desk_at = record_at(DESK)
_requests_at = array_at(REQUEST)
_pools_at = array_at(POOL)
_decisions_at = array_at(DECISION)
_entries_at = array_at(ENTRY)


@njit(cache=True)
def prepare(address: int, request: int, now_s: float) -> tuple[float, int]:
    """Bring what the router sees up to the arrival of a request: what came back, the last poll, its prefix.

    Returns how old the poll is, and of how many requests the end was heard of. All engines must have run up to that
    time. Raises ValueError if it lies before the last arrival.
    """
    desk = _desk_at(address)
    if now_s < desk.now_s:
        raise ValueError("dispatch: an arrival before the last one")
    last_s, desk.now_s = desk.now_s, now_s
    ended_count = _hear(desk, last_s)
    _poll(desk)
    for stay in range(desk.pool_count):
        if desk.streams:
            _stream(desk, stay)
        book.match(_pool(desk, stay).book, _blocks(desk, request), _request(desk, request).input_tokens)
    return now_s - desk.poll_s, ended_count


@njit(cache=True)
def send(address: int, stay: int, index: int, request: int, predicted_tokens: float) -> int:
    """Book and record the decision for a request's stay, and return the number of the chosen instance.

    Returns REFUSED, and books nothing, if that position is not in the pool or the prediction is no length.
    """
    desk = _desk_at(address)
    pool = _pool(desk, stay)
    if not (0 <= index < pool.count and 0 <= predicted_tokens <= book.MOST_TOKENS):
        return REFUSED
    this = book.book_at(pool.book)
    matched_tokens = book.instances_of(this).matched_tokens
    decision = carray(_decisions_at(desk.decisions), (desk.decision_count + 1,))[desk.decision_count]
    decision.request = request
    decision.role = pool.role
    decision.instance = pool.first + index
    decision.chosen_match_tokens = matched_tokens[index]
    decision.best_match_tokens = matched_tokens.max()
    decision.estimated_backlog_s = backlog_s(this.instances, pool.count, index)
    decision.snapshot_age_s = desk.now_s - desk.poll_s
    desk.decision_count += 1
    input_tokens = _request(desk, request).input_tokens
    book.sent(pool.book, index, request, _blocks(desk, request), input_tokens, predicted_tokens)
    return decision.instance


@njit(inline="always")
def _engines(desk: Desk) -> Ints:
    return carray(ints_at(desk.world), (desk.instance_count, desk.world_columns))


@njit(inline="always")
def _pool(desk: Desk, stay: int) -> Any:
    return carray(_pools_at(desk.pools), (desk.pool_count,))[stay]


@njit(inline="always")
def _request(desk: Desk, request: int) -> Any:
    return carray(_requests_at(desk.requests), (desk.request_count,))[request]


@njit(inline="always")
def _blocks(desk: Desk, request: int) -> Ints:
    """View the blocks of a request's prompt."""
    this = _request(desk, request)
    return carray(ints_at(desk.block_ids), (this.end_block,))[this.first_block :]


@njit(cache=True)
def _hear(desk: Desk, last_s: float) -> int:
    """Book what has come back by now; return how many requests have ended. Nothing may be from before the last time."""
    fed = carray(ints_at(desk.fed), (1,))[0]
    feed = carray(_entries_at(desk.feed), (fed,))
    unheard = carray(ints_at(desk.unheard), (fed,))
    ended = carray(ints_at(desk.ended), (desk.request_count,))
    while desk.read_count < fed:
        desk.unheard_count += 1
        push(feed, unheard[: desk.unheard_count], desk.read_count)
        desk.read_count += 1
    ended_count, last = 0, desk.pool_count - 1
    while desk.unheard_count > 0 and feed[unheard[0]].time_s <= desk.now_s:
        entry = feed[pop(feed, unheard[: desk.unheard_count])]
        desk.unheard_count -= 1
        if entry.time_s <= last_s:
            raise RuntimeError("dispatch: heard of a token later than it came")
        stay, request = entry.row // desk.request_count, entry.row % desk.request_count
        if entry.kind != COMPLETED:
            book.first_token(_pool(desk, stay).book, request)
            continue
        book.completed(_pool(desk, stay).book, request)
        if stay == last or _request(desk, request).output_tokens == 1:
            if stay < last:
                # It never goes to the decode instance, which the router could not know.
                book.completed(_pool(desk, last).book, request)
            ended[ended_count] = request
            ended_count += 1
    return ended_count


@njit(cache=True)
def _poll(desk: Desk) -> None:
    """Take the last poll before the present, if it was not taken yet."""
    interval_s, now_s = desk.poll_interval_s, desk.now_s
    poll_s = now_s
    if interval_s > 0:
        number = int(math.floor(now_s / interval_s))
        while (number + 1) * interval_s <= now_s:
            number += 1
        while number * interval_s > now_s:
            number -= 1
        if number == desk.poll_number:
            return
        desk.poll_number = number
        poll_s = number * interval_s
    desk.poll_s = poll_s
    for stay in range(desk.pool_count):
        pool = _pool(desk, stay)
        seen = np.zeros((pool.count, STATES), np.int64)
        world.poll(_engines(desk), pool.first, poll_s, now_s, seen)
        for d in range(pool.count):
            kv_used_tokens = seen[d, KV_BLOCKS] * desk.block_tokens
            book.polled(pool.book, d, seen[d, QUEUED], seen[d, IN_BATCH], kv_used_tokens)


@njit(cache=True)
def _stream(desk: Desk, stay: int) -> None:
    """Book the tokens that have come back: a proxy sees each one pass."""
    pool = _pool(desk, stay)
    world.settle(_engines(desk), pool.first, pool.count, desk.now_s)
    for request in book.in_flight(pool.book):
        row = row_at(desk.rows, request + stay * desk.request_count)
        # The engine may be in a step that ends later: its token has not come yet.
        book.streamed(pool.book, request, row.generated_tokens - (row.last_token_s > desk.now_s))
