"""What a router sees of a pool: the last poll with its age, its ledger, and its constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.routing.base import Arrival, Drain, Floats, Ints, PoolView
from pipeline.routing.ledger import Ledger, read_only
from pipeline.routing.prefix_index import PrefixIndex
from pipeline.spec import InputError
from pipeline.values import Role


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the m instances of a pool as polled at taken_s; arrays (m,), copied."""

    taken_s: float
    queue_count: Ints
    running_count: Ints
    kv_used_tokens: Ints


@dataclass(frozen=True, slots=True)
class PoolConstants:
    """What a router is told of a pool of m instances once and for all; arrays (m,).

    prefill_s_per_token, decode_s_per_token: the router's own constants, not the plant's.
    """

    role: Role
    instance_ids: Ints
    kv_capacity_tokens: Ints
    prefill_s_per_token: Floats
    decode_s_per_token: Floats

    def __post_init__(self) -> None:
        """Refuse an empty pool, arrays of unequal length, no KV capacity, and constants that are not durations."""
        if not self.instance_ids.size:
            raise InputError(f"{self.role} pool: given no instance, expected at least one")
        self._check("kv_capacity_tokens", self.kv_capacity_tokens, self.kv_capacity_tokens > 0, "above 0")
        for name in ("prefill_s_per_token", "decode_s_per_token"):
            values = getattr(self, name)
            self._check(name, values, np.isfinite(values) & (values >= 0), "a finite number, 0 or above")

    def _check(self, name: str, values: Ints | Floats, good: NDArray[np.bool_], expected: str) -> None:
        if values.shape != self.instance_ids.shape:
            raise InputError(f"{self.role} pool: {name}: given {values.size} for {self.instance_ids.size} instances")
        if not good.all():
            at = int(np.argmin(good))
            raise InputError(
                f"{self.role} pool: {name} of instance {self.instance_ids[at]}: given {values[at]}, expected {expected}"
            )


class PoolObserver:
    """Everything that a router knows of one pool in one simulation; hands out a PoolView for each decision.

    block_tokens, block_count: blocks of the trace, whose ids are 0..block_count-1. ledger: to be told of everything
    sent and everything that comes back. Until the first poll the pool is taken as idle since time 0.
    """

    def __init__(self, constants: PoolConstants, drain: Drain, block_tokens: int, block_count: int) -> None:
        index = PrefixIndex(constants.kv_capacity_tokens // block_tokens, block_tokens, block_count)
        self.ledger = Ledger(constants.role, drain, index, constants.instance_ids.size)
        self._constants = constants
        idle = np.zeros(constants.instance_ids.size, np.int64)
        self._last = Snapshot(0.0, idle, idle, idle)

    def polled(self, snapshot: Snapshot) -> None:
        """Take a new snapshot: once for each poll, at the latest before the first view or send after it.

        Raises ValueError if it is older than the last, or its arrays do not fit the pool.
        """
        if snapshot.taken_s < self._last.taken_s:
            raise ValueError(f"snapshot of {snapshot.taken_s} s after one of {self._last.taken_s} s")
        self._last = Snapshot(
            snapshot.taken_s,
            self._kept("queue_count", snapshot.queue_count),
            self._kept("running_count", snapshot.running_count),
            self._kept("kv_used_tokens", snapshot.kv_used_tokens),
        )
        self.ledger.polled()

    def view(self, arrival: Arrival, now_s: float) -> PoolView:
        """What the router sees at `now_s` of the pool, with this request's prefix looked up in the ledger.

        Raises ValueError if `now_s` lies before the last snapshot.
        """
        known, last, book = self._constants, self._last, self.ledger
        if now_s < last.taken_s:
            raise ValueError(f"view at {now_s} s, before the snapshot of {last.taken_s} s")
        return PoolView(
            known.role,
            known.instance_ids,
            now_s - last.taken_s,
            last.queue_count,
            last.running_count,
            last.kv_used_tokens,
            known.kv_capacity_tokens,
            book.in_flight_count,
            book.sent_since_poll_count,
            book.outstanding_input_tokens,
            book.outstanding_output_tokens,
            book.matched_tokens(arrival.prefix_block_ids, arrival.input_tokens),
            known.prefill_s_per_token,
            known.decode_s_per_token,
        )

    def _kept(self, name: str, values: Ints) -> Ints:
        """A copy, so that the engine's later state cannot leak into the view."""
        if values.shape != self._constants.instance_ids.shape or (values < 0).any():
            raise ValueError(f"snapshot {name}: given {values}, expected one count per instance, 0 or above")
        return read_only(values.astype(np.int64, copy=True))
