"""The router's own book: exact sums, never negative, empty once everything came back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_pools import request

from pipeline.routing.ledger import Ledger
from pipeline.routing.prefix_index import PrefixIndex


def ledger(count=2, role="mixed", drain="completion"):
    return Ledger(role, drain, PrefixIndex(np.full(count, 10), 16, 100), count)


def columns(book):
    return [
        book.in_flight_count.tolist(),
        book.outstanding_input_tokens.tolist(),
        book.outstanding_output_tokens.tolist(),
    ]


def test_a_request_is_booked_and_closed():
    book = ledger()
    book.sent(1, request(request_id=1, input_tokens=400, predicted_output_tokens=50.5), matched_tokens=160)
    assert columns(book) == [[0, 1], [0, 240], [0.0, 50.5]]
    book.sent(1, request(request_id=2, input_tokens=10, predicted_output_tokens=7), matched_tokens=0)
    assert columns(book) == [[0, 2], [0, 250], [0.0, 57.5]]
    book.first_token(1, 1)
    assert columns(book) == [[0, 2], [0, 10], [0.0, 57.5]]
    book.completed(1, 1)
    assert columns(book) == [[0, 1], [0, 10], [0.0, 7.0]]
    book.completed(1, 2)  # refused before its first token
    assert columns(book) == [[0, 0], [0, 0], [0.0, 0.0]]


@pytest.mark.parametrize(("role", "tokens"), [("prefill", (400, 0.0)), ("decode", (0, 100.0)), ("mixed", (400, 100.0))])
def test_a_pool_is_booked_for_what_it_computes(role, tokens):
    book = ledger(role=role)
    book.sent(0, request(), 0)
    assert (book.outstanding_input_tokens[0], book.outstanding_output_tokens[0]) == tokens
    book.first_token(0, 7)
    book.completed(0, 7)
    assert columns(book) == [[0, 0], [0, 0], [0.0, 0.0]]


def test_on_the_stream_the_output_drains_as_it_is_seen():
    book = ledger(drain="stream")
    book.sent(0, request(predicted_output_tokens=100), 0)
    book.streamed(0, 7, 1)
    assert book.outstanding_output_tokens[0] == 99
    book.streamed(0, 7, 60)
    book.streamed(0, 7, 60)
    assert book.outstanding_output_tokens[0] == 40
    book.streamed(0, 7, 50)  # an older count that arrives late puts nothing back
    assert book.outstanding_output_tokens[0] == 40
    book.streamed(0, 7, 130)  # longer than predicted
    assert book.outstanding_output_tokens[0] == 0
    book.completed(0, 7)
    assert columns(book) == [[0, 0], [0, 0], [0.0, 0.0]]


def test_on_completion_the_output_stays_until_then():
    book = ledger(drain="completion")
    book.sent(0, request(predicted_output_tokens=100), 0)
    book.streamed(0, 7, 60)
    assert book.outstanding_output_tokens[0] == 100


def test_sent_since_poll_forgets_at_the_poll_and_only_then():
    book = ledger()
    book.sent(0, request(request_id=1), 0)
    book.sent(0, request(request_id=2), 0)
    book.completed(0, 1)
    assert book.sent_since_poll_count.tolist() == [2, 0]
    book.polled()
    assert book.sent_since_poll_count.tolist() == [0, 0]
    assert book.in_flight_count.tolist() == [1, 0]


@pytest.mark.parametrize("event", ["first_token", "completed", "streamed"])
def test_an_unknown_request_is_an_error(event):
    book = ledger()
    book.sent(0, request(request_id=1), 0)
    arguments = (5,) if event == "streamed" else ()
    with pytest.raises(ValueError, match="request 2 is not in flight at position 0, but nowhere"):
        getattr(book, event)(0, 2, *arguments)
    with pytest.raises(ValueError, match="request 1 is not in flight at position 1, but at position 0"):
        getattr(book, event)(1, 1, *arguments)
    book.completed(0, 1)
    with pytest.raises(ValueError, match="request 1 is not in flight"):
        getattr(book, event)(0, 1, *arguments)


@pytest.mark.parametrize(
    ("index", "matched", "changes", "message"),
    [
        (2, 0, {}, "position 2 of 2"),
        (-1, 0, {}, "position -1 of 2"),
        (0, 400, {}, "400 matched of the 400"),
        (0, -1, {}, "-1 matched of the 400"),
        (0, 0, {"predicted_output_tokens": float("nan")}, "given nan predicted"),
        (0, 0, {"predicted_output_tokens": float("inf")}, "given inf predicted"),
        (0, 0, {"predicted_output_tokens": -1.0}, "given -1.0 predicted"),
        (0, 0, {"prefix_block_ids": np.array([100])}, "not in 0..block_count-1"),
        (0, 0, {"prefix_block_ids": np.array([-1])}, "not in 0..block_count-1"),
    ],
)
def test_a_send_that_makes_no_sense_is_refused_and_leaves_the_book_as_it_was(index, matched, changes, message):
    book = ledger()
    with pytest.raises(ValueError, match=message):
        book.sent(index, request(**changes), matched)
    assert columns(book) == [[0, 0], [0, 0], [0.0, 0.0]]
    assert book.sent_since_poll_count.tolist() == [0, 0]


def test_a_request_in_flight_cannot_be_sent_again_but_a_closed_one_can():
    book = ledger()
    book.sent(0, request(), 0)
    with pytest.raises(ValueError, match="request 7 was sent again"):
        book.sent(1, request(), 0)
    book.completed(0, 7)
    book.sent(1, request(), 0)
    assert book.in_flight_count.tolist() == [0, 1]


def test_the_columns_cannot_be_written_to():
    book = ledger()
    for name in ("in_flight_count", "sent_since_poll_count", "outstanding_input_tokens", "outstanding_output_tokens"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(book, name)[0] = 1


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
    book = ledger(5, role, drain)
    in_flight = {}
    events = ["first_token", "streamed", "completed"]

    def step(request_id, event):
        arguments = (data.draw(st.integers(0, 6000)),) if event == "streamed" else ()
        getattr(book, event)(in_flight[request_id], request_id, *arguments)
        if event == "completed":
            del in_flight[request_id]

    def check():
        for values in (book.in_flight_count, book.outstanding_input_tokens, book.outstanding_output_tokens):
            assert (values >= 0).all()
        assert book.in_flight_count.sum() == len(in_flight)

    for request_id, (index, prompt, predicted, share) in enumerate(sends):
        ask = request(request_id=request_id, input_tokens=prompt, predicted_output_tokens=predicted)
        book.sent(index, ask, int(share * prompt))
        in_flight[request_id] = index
        check()
        for _ in range(data.draw(st.integers(0, 2))):
            if in_flight:
                step(data.draw(st.sampled_from(sorted(in_flight))), data.draw(st.sampled_from(events)))
                check()
    for request_id in data.draw(st.permutations(sorted(in_flight))):
        step(request_id, "completed")
        check()
    assert columns(book) == [[0] * 5, [0] * 5, [0.0] * 5]
