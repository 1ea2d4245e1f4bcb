"""Streams of bytes over shared resources: first in, first out within a stream, max-min fair between streams.

A stream carries the transfers of one instance between two tiers, one after the other. Its work is in seconds at full
speed: of a transfer its latency, the cost of its pieces, and its bytes by the bandwidth of its slowest link. Resources
(a GPU's link in one direction, a PCIe switch, the DRAM of a node, its drives, NICs, a pool) are what streams share: the
bytes per second of those that are active are raised together until one is at its full speed, or a resource is taken
(progressive filling: D. Bertsekas, R. Gallager, Data Networks, 1992, 6.5.2).

Speeds change only when a stream begins or runs dry, and work is settled only then: who looks at the network, and how
often, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, typeof

from pipeline.records import make_record, view_bytes, view_float_table, view_floats, view_int_table, view_ints
from pipeline.serving.state import NONE, Floats

Network = np.record

MOST_RESOURCES = 8
"""Of one stream."""
DONE, QUEUED, SPEED, FULL_BYTES_PER_S, AWAITED = range(5)
"""Columns of a stream: seconds of work done and queued since it last began, its share of full speed, bytes per second
at full speed, and the work after which the first transfer that someone waits for has arrived, infinity without one."""
COLUMNS = 5
SLACK = 1e-9
"""Rounding, in seconds and as a share."""


@dataclass(frozen=True)
class Stream:
    """A stream: bytes per second at full speed, and how often each byte crosses each resource, by number."""

    full_bytes_per_s: float
    crosses: Sequence[tuple[int, float]]


def make_network(streams: Sequence[Stream], capacity_bytes_per_s: Sequence[float]) -> Network:
    """Make an idle network of streams and the resources that they cross."""
    table = np.zeros((max(len(streams), 1), COLUMNS))
    table[:, AWAITED] = np.inf
    crossed = np.full((len(table), MOST_RESOURCES), NONE, np.int32)
    weight = np.zeros((len(table), MOST_RESOURCES))
    for row, stream in enumerate(streams):
        table[row, FULL_BYTES_PER_S] = stream.full_bytes_per_s
        for k, (resource, times) in enumerate(stream.crosses):
            crossed[row, k], weight[row, k] = resource, times
    resources = max(len(capacity_bytes_per_s), 1)
    arrays: dict[str, Any] = {
        "streams": table,
        "crossed": crossed,
        "weight": weight,
        "capacity": np.array([*capacity_bytes_per_s, 0.0][:resources], np.float64),
        "left": np.zeros(resources),
        "wanted": np.zeros(resources),
        "active": np.zeros(len(table), np.int32),
        "rising": np.zeros(len(table), np.uint8),
    }
    network = make_record(_NUMBERS, arrays)
    network.change_s = network.look_s = np.inf
    return network


_NUMBERS: list[tuple[Any, ...]] = [
    # last_s: up to when work is settled; change_s: when the next stream runs dry; active_count: streams with work;
    # awaited_count: streams whose first awaited transfer is not taken note of; look_s: when it may have arrived.
    ("last_s", np.float64),
    ("change_s", np.float64),
    ("active_count", np.int64),
    ("awaited_count", np.int64),
    ("look_s", np.float64),
]
NETWORK_TYPE = typeof(make_network([], []))


@njit(cache=True)
def streams(n: Network) -> Floats:
    """View the streams, (streams, COLUMNS)."""
    return view_float_table(n, n.streams_at, n.streams_rows, COLUMNS)


@njit(cache=True)
def _crossed(n: Network) -> Any:
    return view_int_table(n, n.crossed_at, n.crossed_rows, MOST_RESOURCES)


@njit(cache=True)
def _weight(n: Network) -> Floats:
    return view_float_table(n, n.weight_at, n.weight_rows, MOST_RESOURCES)


@njit(cache=True)
def _active(n: Network) -> Any:
    return view_ints(n, n.active_at, n.active_rows)


@njit(cache=True)
def settle(n: Network, now_s: float) -> None:
    """Let everything happen up to now: streams that run dry, and the others going on faster."""
    while n.change_s <= now_s:
        _go_on(n, n.change_s)
        _share(n)


@njit(cache=True)
def add(n: Network, stream: int, work_s: float, now_s: float) -> float:
    """Queue a transfer; return its end in the work of the stream. What happened before now is settled."""
    settle(n, now_s)
    row = streams(n)[stream]
    if row[DONE] < row[QUEUED]:
        row[QUEUED] += work_s
        _look_ahead(n)
        return row[QUEUED]
    _go_on(n, now_s)
    if row[AWAITED] == np.inf:  # nobody counts from the last beginning any more
        row[DONE] = row[QUEUED] = 0.0
    row[QUEUED] += work_s
    if work_s > 0.0:
        _active(n)[n.active_count] = stream
        n.active_count += 1
    _share(n)
    return row[QUEUED]


@njit(cache=True)
def arrival_s(n: Network, stream: int, end: float) -> float:
    """When the stream will have done its work up to `end`, if no speed changes before."""
    row = streams(n)[stream]
    if end <= row[DONE]:
        return n.last_s
    return n.last_s + (end - row[DONE]) / row[SPEED]


@njit(cache=True)
def free_s(n: Network, stream: int) -> float:
    """When the stream will have done all its work, if no speed changes before."""
    return arrival_s(n, stream, streams(n)[stream, QUEUED])


@njit(cache=True)
def wait_for(n: Network, stream: int, end: float) -> None:
    """Say which work someone waits for next; infinity for none."""
    row = streams(n)[stream]
    n.awaited_count += int(end < np.inf) - int(row[AWAITED] < np.inf)
    row[AWAITED] = end
    _look_ahead(n)


@njit(cache=True)
def has_arrived(n: Network, stream: int, now_s: float) -> bool:
    """Say whether the work that someone waits for is done."""
    row = streams(n)[stream]
    return row[AWAITED] < np.inf and arrival_s(n, stream, row[AWAITED]) <= now_s


@njit(cache=True)
def _go_on(n: Network, now_s: float) -> None:
    """Do the work up to now, before which no stream runs dry, and part with those that do now."""
    elapsed_s = now_s - n.last_s
    rows, active = streams(n), _active(n)
    left = 0
    for k in range(n.active_count):
        row = rows[active[k]]
        row[DONE] += row[SPEED] * elapsed_s
        left_s = row[QUEUED] - row[DONE]
        if left_s <= SLACK or now_s + left_s / row[SPEED] <= now_s:
            row[DONE] = row[QUEUED]
            row[SPEED] = 0.0
        else:
            active[left] = active[k]
            left += 1
    n.active_count = left
    n.last_s = now_s


@njit(cache=True)
def _share(n: Network) -> None:
    """Give the active streams their speeds."""
    if not _all_fit(n):
        _fill(n)
    _look_ahead(n)


@njit(cache=True)
def _all_fit(n: Network) -> bool:
    """Give every stream its full speed; say whether the resources can take that."""
    rows, active, crossed, weight = streams(n), _active(n), _crossed(n), _weight(n)
    capacity, wanted = view_floats(n, n.capacity_at, n.capacity_rows), view_floats(n, n.wanted_at, n.wanted_rows)
    wanted[:] = 0.0
    for k in range(n.active_count):
        row = active[k]
        rows[row, SPEED] = 1.0
        for c in range(MOST_RESOURCES):
            if crossed[row, c] == NONE:
                break
            wanted[crossed[row, c]] += weight[row, c] * rows[row, FULL_BYTES_PER_S]
    fits = True
    for r in range(capacity.size):
        fits &= wanted[r] <= capacity[r] * (1 + SLACK)
    return fits


@njit(cache=True)
def _fill(n: Network) -> None:
    """Raise all streams together, until each is at its full speed or crosses a resource that is taken."""
    rows, active = streams(n), _active(n)
    left, capacity = view_floats(n, n.left_at, n.left_rows), view_floats(n, n.capacity_at, n.capacity_rows)
    rising = _rising(n)
    left[:] = capacity
    for k in range(n.active_count):
        rising[k] = 1
    level, count = 0.0, n.active_count
    while count > 0:
        step = _step(n, level)
        level += step
        _take(n, step)
        before = count
        for k in range(n.active_count):
            if rising[k] and (rows[active[k], FULL_BYTES_PER_S] <= level * (1 + SLACK) or _is_stopped(n, active[k])):
                rising[k] = 0
                rows[active[k], SPEED] = min(level / rows[active[k], FULL_BYTES_PER_S], 1.0)
                count -= 1
        if count == before:
            raise RuntimeError("network: no stream can be stopped, though a resource is taken")


@njit(cache=True)
def _rising(n: Network) -> Any:
    return view_bytes(n, n.rising_at, n.rising_rows)


@njit(cache=True)
def _step(n: Network, level: float) -> float:
    """By how many bytes per second all that still rise can: the sum of what they cross is left in `wanted`."""
    rows, active, crossed, weight = streams(n), _active(n), _crossed(n), _weight(n)
    left, wanted = view_floats(n, n.left_at, n.left_rows), view_floats(n, n.wanted_at, n.wanted_rows)
    rising = _rising(n)
    wanted[:] = 0.0
    step: float = np.inf
    for k in range(n.active_count):
        if rising[k]:
            row = active[k]
            step = min(step, rows[row, FULL_BYTES_PER_S] - level)
            for c in range(MOST_RESOURCES):
                if crossed[row, c] == NONE:
                    break
                wanted[crossed[row, c]] += weight[row, c]
    for r in range(left.size):
        if wanted[r] > 0.0:
            step = min(step, left[r] / wanted[r])
    return max(step, 0.0)


@njit(cache=True)
def _take(n: Network, step: float) -> None:
    left, wanted = view_floats(n, n.left_at, n.left_rows), view_floats(n, n.wanted_at, n.wanted_rows)
    for r in range(left.size):
        left[r] -= step * wanted[r]


@njit(cache=True)
def _is_stopped(n: Network, stream: int) -> bool:
    """Say whether the stream crosses a resource of which nothing is left."""
    crossed = _crossed(n)
    left, capacity = view_floats(n, n.left_at, n.left_rows), view_floats(n, n.capacity_at, n.capacity_rows)
    for c in range(MOST_RESOURCES):
        resource = crossed[stream, c]
        if resource == NONE:
            break
        if left[resource] <= capacity[resource] * SLACK:
            return True
    return False


@njit(cache=True)
def _look_ahead(n: Any) -> None:
    """Find when the next stream runs dry, and when to look for what someone waits for."""
    rows, active = streams(n), _active(n)
    n.change_s = np.inf
    for k in range(n.active_count):
        row = rows[active[k]]
        n.change_s = min(n.change_s, n.last_s + (row[QUEUED] - row[DONE]) / row[SPEED])
    n.look_s = np.inf
    if n.awaited_count == 0:
        return
    for stream in range(rows.shape[0]):
        if rows[stream, AWAITED] < np.inf:
            n.look_s = min(n.look_s, arrival_s(n, stream, float(rows[stream, AWAITED])))
    n.look_s = min(n.look_s, n.change_s)


@njit(cache=True)
def bytes_per_s(n: Network, first: int, count: int) -> float:
    """Bytes per second that `count` streams from `first` on carry."""
    total = 0.0
    if n.active_count > 0:
        rows = streams(n)
        for stream in range(first, first + count):
            total += rows[stream, SPEED] * rows[stream, FULL_BYTES_PER_S]
    return total
