"""The router's own book of a pool: what it sent to each instance, and what has come back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.routing.base import Drain, Floats, Ints, RequestView
from pipeline.routing.prefix_index import PrefixIndex
from pipeline.values import Role

T = TypeVar("T", bound=np.generic)

GRAIN = 1024.0  # predicted tokens are booked in 1/1024 of a token: sums of those are exact, so the book never drifts
MOST_TOKENS = 2.0**32  # of one prediction: with more, the sums would no longer be exact


@dataclass(slots=True)
class _Sent:
    """A request in flight: where, and what of it is still outstanding."""

    index: int
    input_tokens: int
    output_tokens: float
    predicted_tokens: float


class Ledger:
    """What a router believes of the m instances of one pool, from its own traffic alone.

    A decode pool computes no prompt and a prefill pool no output, so neither is booked there.
    in_flight_count, sent_since_poll_count, outstanding_input_tokens, outstanding_output_tokens: (m,), read-only views
    that follow the book; never negative, and all but sent_since_poll_count zero once everything has come back.
    prefix_index: which prompt blocks went where.
    """

    def __init__(self, role: Role, drain: Drain, prefix_index: PrefixIndex, instance_count: int) -> None:
        self.prefix_index = prefix_index
        self._books_input = role != "decode"
        self._books_output = role != "prefill"
        self._drain = drain
        self._open: dict[int, _Sent] = {}
        self._in_flight = np.zeros(instance_count, np.int64)
        self._since_poll = np.zeros(instance_count, np.int64)
        self._input = np.zeros(instance_count, np.int64)
        self._output = np.zeros(instance_count)
        self.in_flight_count: Ints = read_only(self._in_flight)
        self.sent_since_poll_count: Ints = read_only(self._since_poll)
        self.outstanding_input_tokens: Ints = read_only(self._input)
        self.outstanding_output_tokens: Floats = read_only(self._output)

    def sent(self, index: int, request: RequestView, matched_tokens: int) -> None:
        """Book a request sent to the instance in position `index`, of whose prompt it holds `matched_tokens`.

        Raises ValueError if the request is in flight already, or a number makes no sense.
        """
        if not 0 <= index < self._in_flight.size:
            raise ValueError(f"ledger: sent to position {index} of {self._in_flight.size} instances")
        if request.request_id in self._open:
            raise ValueError(f"ledger: request {request.request_id} was sent again while in flight")
        if not 0 <= matched_tokens < request.input_tokens:
            raise ValueError(f"ledger: {matched_tokens} matched of the {request.input_tokens} tokens of a prompt")
        if not 0 <= request.predicted_output_tokens <= MOST_TOKENS:
            raise ValueError(f"ledger: given {request.predicted_output_tokens} predicted output tokens")
        self.prefix_index.record(index, request.prefix_block_ids)  # first: it refuses unknown blocks
        uncached = request.input_tokens - matched_tokens if self._books_input else 0
        output = math.ceil(request.predicted_output_tokens * GRAIN) / GRAIN if self._books_output else 0.0
        self._open[request.request_id] = _Sent(index, uncached, output, output)
        self._in_flight[index] += 1
        self._since_poll[index] += 1
        self._input[index] += uncached
        self._output[index] += output

    def first_token(self, index: int, request_id: int) -> None:
        """Book that a request's first token came back: its prompt is done. Raises ValueError if it is not there."""
        sent = self._find(index, request_id)
        self._input[index] -= sent.input_tokens
        sent.input_tokens = 0

    def streamed(self, index: int, request_id: int, seen_tokens: int) -> None:
        """Book that `seen_tokens` of a request's output have come back so far, its first included.

        May be called at any interval, or never; it changes nothing unless the book drains on the stream. A request
        that outlives its prediction has nothing outstanding. Raises ValueError if it is not there.
        """
        sent = self._find(index, request_id)
        if self._drain == "stream":
            left = min(sent.output_tokens, max(sent.predicted_tokens - seen_tokens, 0.0))
            self._output[index] -= sent.output_tokens - left
            sent.output_tokens = left

    def completed(self, index: int, request_id: int) -> None:
        """Close a request that completed, or that the instance refused. Raises ValueError if it is not there."""
        sent = self._find(index, request_id)
        del self._open[request_id]
        self._in_flight[index] -= 1
        self._input[index] -= sent.input_tokens
        self._output[index] -= sent.output_tokens

    def polled(self) -> None:
        """Book that a new snapshot was taken: it holds everything sent so far."""
        self._since_poll[:] = 0

    def matched_tokens(self, block_ids: Ints, input_tokens: int) -> Ints:
        """Leading prompt tokens that each instance holds, by what was sent to it, shape (m,)."""
        return self.prefix_index.matched_tokens(block_ids, input_tokens)

    def _find(self, index: int, request_id: int) -> _Sent:
        sent = self._open.get(request_id)
        if sent is None or sent.index != index:
            where = "nowhere" if sent is None else f"at position {sent.index}"
            raise ValueError(f"ledger: request {request_id} is not in flight at position {index}, but {where}")
        return sent


def read_only(array: NDArray[T]) -> NDArray[T]:
    """A view of `array` that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view
