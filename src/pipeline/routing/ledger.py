"""A router's ledger of one pool: the memory behind what it sees, for the rules of `book`."""

from __future__ import annotations

import numpy as np

from pipeline.records import address_of, make_header
from pipeline.routing import book
from pipeline.routing.base import Drain, PoolView
from pipeline.routing.instances import Instances
from pipeline.routing.prefix_index import PrefixIndex
from pipeline.values import Role


class Ledger:
    """What a router knows of the m instances of one pool, from the last poll and from its own traffic.

    A decode pool computes no prompt and a prefill pool no output, so neither is booked there. Requests are numbered
    from 0 to request_count - 1. Until the first poll the pool is taken as idle.
    view: what routers are shown; nothing in it is ever negative, and all that is outstanding or in flight is zero once
    everything has come back. address: for compiled code, see `book`.
    """

    def __init__(self, role: Role, drain: Drain, instances: Instances, index: PrefixIndex, request_count: int) -> None:
        self._instances, self._index = instances, index
        self._sent = np.zeros(request_count, book.SENT)
        self._sent["index"] = book.NOWHERE
        self._in_flight = np.zeros(request_count, np.int64)
        self._book = make_header(
            book.BOOK,
            instances=instances,
            instance_count=instances.size,
            sent=self._sent,
            in_flight=self._in_flight,
            request_count=request_count,
            prefix_index=index.address,
            books_input=role != "decode",
            books_output=role != "prefill",
            drains_on_stream=drain == "stream",
        )
        self.address = address_of(self._book)
        self.view = PoolView(role, instances)
