"""The router's own book: exact sums, never negative, empty once everything came back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_pools import instances

from pipeline.routing import book
from pipeline.routing.instances import INSTANCE
from pipeline.routing.ledger import Ledger
from pipeline.routing.prefix_index import PrefixIndex

REQUESTS = 30
COLUMNS = ("in_flight_count", "outstanding_input_tokens", "outstanding_output_tokens")


def chain(*blocks):
    return np.array(blocks, np.int64)


class Book:
    """The rules of a ledger's book as methods."""

    def __init__(self, count=2, role="mixed", drain="completion"):
        self.instances = instances(count)
        self.ledger = Ledger(role, drain, self.instances, PrefixIndex(np.full(count, 10), 16, 100), REQUESTS)
        self.view = self.ledger.view

    def __getattr__(self, rule):
        return lambda *arguments: getattr(book, rule)(self.ledger.address, *arguments)

    def send(self, index, request=7, input_tokens=400, predicted=100.0, blocks=()):
        self.sent(index, request, chain(*blocks), input_tokens, predicted)

    def columns(self):
        return [getattr(self.view, name).tolist() for name in COLUMNS]


def test_a_request_is_booked_and_closed():
    kept = Book()
    kept.instances["matched_tokens"] = [0, 160]
    kept.send(1, 1, 400, 50.5)
    assert kept.columns() == [[0, 1], [0, 240], [0.0, 50.5]]
    kept.instances["matched_tokens"] = 0
    kept.send(1, 2, 10, 7.0)
    assert kept.columns() == [[0, 2], [0, 250], [0.0, 57.5]]
    assert kept.view.backlog_s(1) == pytest.approx(250 * 0.001 + 57.5 * 0.01, rel=1e-12)
    kept.first_token(1)
    assert kept.columns() == [[0, 2], [0, 10], [0.0, 57.5]]
    kept.completed(1)
    assert kept.columns() == [[0, 1], [0, 10], [0.0, 7.0]]
    kept.completed(2)  # refused before its first token
    assert kept.columns() == [[0, 0], [0, 0], [0.0, 0.0]]


@pytest.mark.parametrize(("role", "tokens"), [("prefill", (400, 0.0)), ("decode", (0, 100.0)), ("mixed", (400, 100.0))])
def test_a_pool_is_booked_for_what_it_computes(role, tokens):
    kept = Book(role=role)
    kept.send(0)
    assert (kept.view.outstanding_input_tokens[0], kept.view.outstanding_output_tokens[0]) == tokens
    kept.first_token(7)
    kept.completed(7)
    assert kept.columns() == [[0, 0], [0, 0], [0.0, 0.0]]


def test_on_the_stream_the_output_drains_as_it_is_seen():
    kept = Book(drain="stream")
    kept.send(0)
    outstanding = kept.view.outstanding_output_tokens
    kept.streamed(7, 1)
    assert outstanding[0] == 99
    kept.streamed(7, 60)
    kept.streamed(7, 60)
    assert outstanding[0] == 40
    kept.streamed(7, 50)  # an older count that arrives late puts nothing back
    assert outstanding[0] == 40
    kept.streamed(7, 130)  # longer than predicted
    assert outstanding[0] == 0
    kept.completed(7)
    assert kept.columns() == [[0, 0], [0, 0], [0.0, 0.0]]


def test_on_completion_the_output_stays_until_then():
    kept = Book(drain="completion")
    kept.send(0)
    kept.streamed(7, 60)
    assert kept.view.outstanding_output_tokens[0] == 100


def test_a_poll_is_seen_and_holds_what_was_sent_before():
    kept = Book()
    kept.send(0, 1)
    kept.send(0, 2)
    kept.completed(1)
    assert kept.view.sent_since_poll_count.tolist() == [2, 0]
    kept.polled(0, 4, 5, 96)
    kept.polled(1, 1, 2, 16)
    assert kept.view.sent_since_poll_count.tolist() == [0, 0]
    assert kept.view.in_flight_count.tolist() == [1, 0]
    assert kept.view.queue_count.tolist() == [4, 1]
    assert kept.view.running_count.tolist() == [5, 2]
    assert kept.view.kv_used_tokens.tolist() == [96, 16]


@pytest.mark.parametrize("seen", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_a_poll_that_makes_no_sense_is_refused(seen):
    with pytest.raises(ValueError, match="negative"):
        Book().polled(0, *seen)


def test_before_the_first_poll_the_pool_is_idle():
    view = Book(3).view
    assert view.queue_count.tolist() == view.running_count.tolist() == view.kv_used_tokens.tolist() == [0, 0, 0]


def test_a_prompt_is_matched_with_what_was_sent_and_one_without_blocks_with_nothing():
    kept = Book()
    kept.send(1, 1, 90, blocks=range(5))
    kept.match(chain(*range(5)), 90)
    assert kept.view.matched_tokens.tolist() == [0, 80]
    kept.send(1, 2, 90, blocks=range(5))
    assert kept.view.outstanding_input_tokens.tolist() == [0, 90 + 10]
    kept.match(chain(), 90)
    assert kept.view.matched_tokens.tolist() == [0, 0]


@pytest.mark.parametrize(("event", "arguments"), [("first_token", ()), ("completed", ()), ("streamed", (5,))])
def test_what_comes_back_of_a_request_that_is_not_in_flight_is_refused(event, arguments):
    kept = Book()
    kept.send(0, 1)
    for request in (-1, REQUESTS):
        with pytest.raises(ValueError, match="a request that does not exist"):
            getattr(kept, event)(request, *arguments)
    with pytest.raises(ValueError, match="not in flight"):
        getattr(kept, event)(2, *arguments)
    kept.completed(1)
    with pytest.raises(ValueError, match="not in flight"):
        getattr(kept, event)(1, *arguments)
    assert kept.columns() == [[0, 0], [0, 0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("index", "matched", "changes", "message"),
    [
        (2, 0, {}, "a position that is not in the pool"),
        (-1, 0, {}, "a position that is not in the pool"),
        (0, 0, {"request": -1}, "a request that does not exist"),
        (0, 0, {"request": REQUESTS}, "a request that does not exist"),
        (0, 400, {}, "not fewer tokens matched than the prompt has"),
        (0, -1, {}, "not fewer tokens matched than the prompt has"),
        (0, 0, {"predicted": float("nan")}, "predicted output tokens"),
        (0, 0, {"predicted": float("inf")}, "predicted output tokens"),
        (0, 0, {"predicted": -1.0}, "predicted output tokens"),
        (0, 0, {"blocks": [100]}, "not in 0..block_count-1"),
        (0, 0, {"blocks": [-1]}, "not in 0..block_count-1"),
    ],
)
def test_a_send_that_makes_no_sense_is_refused_and_leaves_the_book_as_it_was(index, matched, changes, message):
    kept = Book()
    kept.instances["matched_tokens"] = matched
    with pytest.raises(ValueError, match=message):
        kept.send(index, **changes)
    assert kept.columns() == [[0, 0], [0, 0], [0.0, 0.0]]
    assert kept.view.sent_since_poll_count.tolist() == [0, 0]


def test_a_request_in_flight_cannot_be_sent_again_but_a_closed_one_can():
    kept = Book()
    kept.send(0)
    with pytest.raises(ValueError, match="sent again while in flight"):
        kept.send(1)
    kept.completed(7)
    kept.send(1)
    assert kept.view.in_flight_count.tolist() == [0, 1]


def test_a_view_cannot_be_written_to():
    view = Book().view
    for name in INSTANCE.names:
        with pytest.raises(ValueError, match="read-only"):
            getattr(view, name)[0] = 1


@settings(max_examples=100, deadline=None)
@given(
    drain=st.sampled_from(["completion", "stream"]),
    role=st.sampled_from(["prefill", "decode", "mixed"]),
    sends=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 9000), st.floats(0, 5000), st.floats(0, 1, exclude_max=True)),
        max_size=25,
    ),
    data=st.data(),
)
def test_the_book_is_never_negative_and_empty_at_the_end(drain, role, sends, data):
    kept, in_flight = Book(5, role, drain), set()
    events = ["first_token", "streamed", "completed"]

    def step(request, event):
        arguments = (data.draw(st.integers(0, 6000)),) if event == "streamed" else ()
        getattr(kept, event)(request, *arguments)
        if event == "completed":
            in_flight.remove(request)

    def check():
        for name in COLUMNS:
            assert (getattr(kept.view, name) >= 0).all()
        assert kept.view.in_flight_count.sum() == len(in_flight)
        assert set(book.in_flight(kept.ledger.address).tolist()) == in_flight

    for request, (index, prompt, predicted, share) in enumerate(sends):
        kept.instances["matched_tokens"] = int(share * prompt)
        kept.send(index, request, prompt, predicted)
        in_flight.add(request)
        check()
        for _ in range(data.draw(st.integers(0, 2))):
            if in_flight:
                step(data.draw(st.sampled_from(sorted(in_flight))), data.draw(st.sampled_from(events)))
                check()
    for request in data.draw(st.permutations(sorted(in_flight))):
        step(request, "completed")
        check()
    assert kept.columns() == [[0] * 5, [0] * 5, [0.0] * 5]
