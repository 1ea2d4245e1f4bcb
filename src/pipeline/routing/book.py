"""The rules of a router's book in compiled code: what it sent to each instance of a pool, and what has come back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numba.np.numpy_support import carray

from pipeline.records import array_at, ints_at, record_at
from pipeline.routing import prefix_index
from pipeline.routing.instances import Instances, Ints, instances_at

GRAIN = 1024.0  # predicted tokens are booked in 1/1024 of a token: sums of those are exact, so the book never drifts
MOST_TOKENS = 2.0**32  # of one prediction: with more, the sums would no longer be exact
NOWHERE = -1

SENT = np.dtype(
    [
        ("index", np.int64),
        ("input_tokens", np.int64),
        ("output_tokens", np.float64),
        ("predicted_tokens", np.float64),
        ("place", np.int64),
    ],
    align=True,
)
"""A request: where it is in flight, or NOWHERE; what of it is outstanding; and its place in the list of those."""

BOOK = np.dtype(
    [
        ("instances", np.int64),
        ("instance_count", np.int64),
        ("sent", np.int64),
        ("in_flight", np.int64),
        ("request_count", np.int64),
        ("in_flight_count", np.int64),
        ("prefix_index", np.int64),
        ("is_matched", np.bool_),
        ("books_input", np.bool_),
        ("books_output", np.bool_),
        ("drains_on_stream", np.bool_),
    ],
    align=True,
)
"""Addresses of INSTANCE (instance_count,); of SENT and in_flight (request_count,), the first in_flight_count of which
are requests; and of the prefix index. is_matched: some matched_tokens may not be 0."""

Book = Any
book_at = record_at(BOOK)
_sent_at = array_at(SENT)


@njit(inline="always")
def instances_of(book: Book) -> Instances:
    """View the instances of the pool."""
    return instances_at(book.instances, book.instance_count)


@njit(cache=True)
def in_flight(address: int) -> Ints:
    """View the requests in flight."""
    book = book_at(address)
    return carray(ints_at(book.in_flight), (book.in_flight_count,))


@njit(inline="always")
def _find(book: Book, request: int) -> Any:
    """What was sent of a request in flight."""
    if not 0 <= request < book.request_count:
        raise ValueError("ledger: a request that does not exist")
    sent = carray(_sent_at(book.sent), (book.request_count,))[request]
    if sent.index == NOWHERE:
        raise ValueError("ledger: the request is not in flight")
    return sent


@njit(cache=True)
def match(address: int, block_ids: Ints, input_tokens: int) -> None:
    """Look a prompt up in the prefix index: matched_tokens of each instance.

    Raises ValueError if a block id is out of range.
    """
    book = book_at(address)
    if block_ids.size:
        prefix_index.match(book.prefix_index, block_ids, input_tokens, instances_of(book).matched_tokens)
    elif book.is_matched:
        instances_of(book).matched_tokens[:] = 0
    book.is_matched = block_ids.size > 0


@njit(cache=True)
def sent(address: int, index: int, request: int, block_ids: Ints, input_tokens: int, predicted_tokens: float) -> None:
    """Book a request sent to the instance in position `index`, which holds what `match` found there.

    Raises ValueError if the request is in flight already, or a number makes no sense.
    """
    book = book_at(address)
    if not 0 <= index < book.instance_count:
        raise ValueError("ledger: sent to a position that is not in the pool")
    if not 0 <= request < book.request_count:
        raise ValueError("ledger: a request that does not exist")
    if not 0 <= predicted_tokens <= MOST_TOKENS:
        raise ValueError("ledger: predicted output tokens are not in 0..2**32")
    this = carray(_sent_at(book.sent), (book.request_count,))[request]
    if this.index != NOWHERE:
        raise ValueError("ledger: the request was sent again while in flight")
    known = instances_of(book)[index]
    if not 0 <= known.matched_tokens < input_tokens:
        raise ValueError("ledger: not fewer tokens matched than the prompt has")
    if block_ids.size:
        prefix_index.record(book.prefix_index, index, block_ids)
    this.index = index
    this.input_tokens = input_tokens - known.matched_tokens if book.books_input else 0
    this.output_tokens = math.ceil(predicted_tokens * GRAIN) / GRAIN if book.books_output else 0.0
    this.predicted_tokens = this.output_tokens
    this.place = book.in_flight_count
    book.in_flight_count += 1
    in_flight(address)[this.place] = request
    known.in_flight_count += 1
    known.sent_since_poll_count += 1
    known.outstanding_input_tokens += this.input_tokens
    known.outstanding_output_tokens += this.output_tokens


@njit(cache=True)
def first_token(address: int, request: int) -> None:
    """Book that a request's first token came back: its prompt is done. Raises ValueError if it is not in flight."""
    book = book_at(address)
    this = _find(book, request)
    instances_of(book)[this.index].outstanding_input_tokens -= this.input_tokens
    this.input_tokens = 0


@njit(cache=True)
def streamed(address: int, request: int, seen_tokens: int) -> None:
    """Book that `seen_tokens` of a request's output have come back so far, its first included.

    May be called at any interval, or never; it changes nothing unless the book drains on the stream. A request that
    outlives its prediction has nothing outstanding. Raises ValueError if it is not in flight.
    """
    book = book_at(address)
    this = _find(book, request)
    if book.drains_on_stream:
        left = min(this.output_tokens, max(this.predicted_tokens - seen_tokens, 0.0))
        instances_of(book)[this.index].outstanding_output_tokens -= this.output_tokens - left
        this.output_tokens = left


@njit(cache=True)
def completed(address: int, request: int) -> None:
    """Close a request that completed, or that the instance refused. Raises ValueError if it is not in flight."""
    book = book_at(address)
    this = _find(book, request)
    known = instances_of(book)[this.index]
    known.in_flight_count -= 1
    known.outstanding_input_tokens -= this.input_tokens
    known.outstanding_output_tokens -= this.output_tokens
    this.index = NOWHERE
    listed = in_flight(address)
    last = listed[listed.size - 1]
    listed[this.place] = last
    carray(_sent_at(book.sent), (book.request_count,))[last].place = this.place
    book.in_flight_count -= 1


@njit(cache=True)
def polled(address: int, index: int, queue_count: int, running_count: int, kv_used_tokens: int) -> None:
    """Take what a new poll saw of an instance: it holds everything sent there so far.

    Raises ValueError if a number is negative.
    """
    if queue_count < 0 or running_count < 0 or kv_used_tokens < 0:
        raise ValueError("ledger: a poll saw a negative number")
    known = instances_of(book_at(address))[index]
    known.queue_count = queue_count
    known.running_count = running_count
    known.kv_used_tokens = kv_used_tokens
    known.sent_since_poll_count = 0
