"""State of the engines of a cluster: what the compiled kernel reads and writes.

A *row* is one stay of a request at an engine: a request has one, or, where prefill and decode are split, two (row r of
n at the prefill instance, row n + r at the decode instance). Rows are records of one array; an engine is a record with
arrays of its own (see records.py, rows.py). Times are simulated seconds, NaN until they are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from pipeline.placement.state import Stack, StackTiers
from pipeline.records import ints_at, make_header, make_record, record_at, view_float_table, view_ints
from pipeline.serving.rows import (
    ABSENT,
    DONE,
    HELD,
    LOADING,
    NONE,
    READY,
    ROW,
    RUNNING,
    WAITING,
    Row,
    Rows,
    int64,
    make_rows,
    row_at,
)

__all__ = [
    "ABSENT",
    "DONE",
    "HELD",
    "LOADING",
    "NONE",
    "READY",
    "ROW",
    "RUNNING",
    "WAITING",
    "Row",
    "Rows",
    "int64",
    "make_rows",
    "row_at",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Engine = Any

QUEUES = 3
FIRST_TOKEN, COMPLETED, HANDOFF = map(int64, range(3))
"""What the log tells of."""
QUEUED, IN_BATCH, KV_BLOCKS, TOKENS = range(4)
"""What is observed of an engine: waiting requests, running requests, blocks in use; tokens put out."""
STATES = 3

_ENGINE: list[tuple[Any, ...]] = [
    # Limits. max_idle_steps: more steps than that without completing a request are an error; poll_s: between two
    # polls; patience_s: how far ahead prefetched blocks may be due for a row to wait for them; hbm_bytes_per_s: of all
    # ranks, 0 if transfers are not to slow steps down; weights_read_s, token_read_s: to read all weights, and a token's
    # KV, from it; coasts: runs of mere decoding are done in one go; plans_ahead: async scheduling; ranks: rows may
    # differ in rank; preempts_by_rank: who has the highest is preempted, not who was admitted last.
    ("number", np.int64),
    ("max_running", np.int64),
    ("max_batched_tokens", np.int64),
    ("block_tokens", np.int64),
    ("max_idle_steps", np.int64),
    ("poll_s", np.float64),
    ("patience_s", np.float64),
    *((name, np.float64) for name in ("hbm_bytes_per_s", "weights_read_s", "token_read_s")),
    ("coasts", np.int64),
    ("plans_ahead", np.bool_),
    ("ranks", np.bool_),
    ("preempts_by_rank", np.bool_),
    # KV in DRAM, see Streaming; without, `streams` is false, attended_ratio 1 and the others 0. read_s, write_s: of a
    # token; streamed_tokens: read and written so far.
    ("streams", np.bool_),
    ("overlaps", np.bool_),
    *((name, np.float64) for name in ("attended_ratio", "dram_ratio", "read_ratio", "read_s", "write_s")),
    ("streamed_tokens", np.float64, (2,)),
    # Queues and batch. clock_s: start of the next step, inf while there is nothing to do; decoding: every running row
    # has put out a token and lacks the next; blocked: the head of the queue did not fit, and nothing has changed since;
    # planned: `scheduled` already holds the next step; coasting: in a run of steps that only decode, see below; until
    # quiet_s at least nothing comes of it but more tokens for the same requests; written_s: when what was computed was
    # last written; handoff_count: begun.
    ("clock_s", np.float64),
    ("head", np.int64, (QUEUES,)),
    ("tail", np.int64, (QUEUES,)),
    ("queued_count", np.int64),
    ("running_count", np.int64),
    ("decoding", np.int64),
    ("blocked", np.int64),
    ("planned", np.bool_),
    ("coasting", np.bool_),
    ("quiet_s", np.float64),
    ("written_s", np.float64),
    ("handoff_count", np.int64),
    ("idle_steps", np.int64),
    # Totals. outside_s: the part of step_s that lies outside the profiled range.
    ("step_count", np.int64),
    ("step_s", np.float64),
    ("outside_s", np.float64),
    # A run of decoding, of which the rows know nothing yet: steps done, and those until one completes a request; the
    # first step for which a row needs a block, or fills one; of the next step the KV tokens of its rows, their squares
    # and the most; end of the first step, and the longest of the others.
    ("run_done", np.int64),
    ("run_steps", np.int64),
    ("run_due", np.int64),
    ("run_context", np.int64),
    ("run_squares", np.int64),
    ("run_most", np.int64),
    ("run_first_end_s", np.float64),
    ("run_longest_s", np.float64),
    # Observed. values: since since_s; emitted: tokens of the step that ends at the next boundary; polled_values: at
    # the last poll before since_s; next_poll: number of the first poll from since_s on; bin_s: length of an interval;
    # bin_at, bin_end_s: the interval of since_s and its end.
    ("values", np.int64, (STATES,)),
    ("since_s", np.float64),
    ("emitted", np.int64),
    ("polled_values", np.int64, (STATES,)),
    ("next_poll", np.int64),
    ("bin_s", np.float64),
    ("bin_at", np.int64),
    ("bin_end_s", np.float64),
]


ENTRY = np.dtype([("time_s", np.float64), ("kind", np.int64), ("instance", np.int64), ("row", np.int64)], align=True)
WRITTEN, FED = range(2)
LOG = np.dtype([(name, np.int64) for name in ("entries", "feed", "counts", "room")], align=True)
"""Addresses of what `make_log` is given, and the entries after which one more step may not fit."""


class Machine(NamedTuple):
    """One instance as the kernel handles it: its own records, and what all share: none of it an array.

    rows, ids: addresses of the rows and of the trace's block ids; id_count: how many there are.
    """

    engine: Engine
    stack: Stack
    tiers: StackTiers
    rows: int
    ids: int
    id_count: int
    links: Any
    network: Any
    log: Any
    table: Any


def make_engine(
    number: int, max_running: int, max_batched_tokens: int, block_tokens: int, loader_blocks: int, bins: int
) -> Engine:
    """Make an idle engine.

    Arrays: running, scheduled, due (max_running,): rows in order of admission, their tokens in this step, and the step
    of a run of decoding in which they next need or fill a block; loader
    (loader_blocks,): row that is loading a block into HBM; batch_s (max_running + 1, 1): time by running requests;
    bins (bins, 4): integral of each value, and tokens, by interval.
    """
    arrays: dict[str, NDArray[Any]] = {
        "running": np.zeros(max_running, np.int32),
        "scheduled": np.zeros(max_running, np.int32),
        "due": np.zeros(max_running, np.int32),
        "loader": np.full(loader_blocks, NONE, np.int32),
        "batch_s": np.zeros((max_running + 1, 1)),
        "bins": np.zeros((bins, STATES + 1)),
    }
    engine = make_record(_ENGINE, arrays)
    engine.number = number
    engine.max_running = max_running
    engine.max_batched_tokens = max_batched_tokens
    engine.block_tokens = block_tokens
    engine.attended_ratio = 1.0
    engine.clock_s = np.inf
    engine.written_s = -np.inf
    engine.head[:] = NONE
    engine.tail[:] = NONE
    return engine


def make_log(entries: NDArray[Any], feed: NDArray[Any], counts: Ints, row_count: int) -> NDArray[Any]:
    """Make the log of a simulation over memory for its entries, see `log_memory`.

    entries: what happened that events follow from, until it is read. feed: first tokens and completions, all of them.
    counts: (2,) of each how many were WRITTEN and FED.
    """
    return make_header(LOG, entries=entries, feed=feed, counts=counts, room=entries.size - 2 * row_count)


def log_memory(row_count: int) -> tuple[NDArray[Any], NDArray[Any], Ints]:
    """Memory for a log: entries of one step and more, all first tokens and completions, and the two counts."""
    return np.zeros(4 * row_count + 1024, ENTRY), np.zeros(2 * row_count + 2, ENTRY), np.zeros(2, np.int64)


ENGINE_TYPE = typeof(make_engine(0, 1, 1, 1, 0, 2))
_entry: Any = record_at(ENTRY)
ENTRY_BYTES = ENTRY.itemsize


@njit(cache=True)
def block_ids(x: Machine) -> Ints:
    """View the block ids of the trace."""
    return carray(ints_at(x.ids), (x.id_count,))


@njit(cache=True)
def running(engine: Engine) -> NDArray[np.int32]:
    """View the running rows, (max_running,)."""
    return view_ints(engine, engine.running_at, engine.running_rows)


@njit(cache=True)
def scheduled(engine: Engine) -> NDArray[np.int32]:
    """View the tokens of each running row in this step, (max_running,)."""
    return view_ints(engine, engine.scheduled_at, engine.scheduled_rows)


@njit(cache=True)
def dues(engine: Engine) -> NDArray[np.int32]:
    """View the step of a run in which each running row next needs or fills a block, (max_running,)."""
    return view_ints(engine, engine.due_at, engine.due_rows)


@njit(cache=True)
def loader(engine: Engine) -> NDArray[np.int32]:
    """View the row that is loading each block, (blocks,), or (0,)."""
    return view_ints(engine, engine.loader_at, engine.loader_rows)


@njit(cache=True)
def batch_s(engine: Engine) -> Floats:
    """View the time by number of running requests, (max_running + 1, 1)."""
    return view_float_table(engine, engine.batch_s_at, engine.batch_s_rows, 1)


@njit(cache=True)
def bins(engine: Engine) -> Floats:
    """View the time line, (bins, 4)."""
    return view_float_table(engine, engine.bins_at, engine.bins_rows, STATES + 1)


@njit(cache=True)
def _write(address: int, kind: int, row: int, instance: int, time_s: float) -> None:
    entry = _entry(address)
    entry.time_s = time_s
    entry.kind = kind
    entry.instance = instance
    entry.row = row


@njit(cache=True)
def write_log(log: Any, kind: int, row: int, instance: int, time_s: float) -> None:
    """Add an entry that an event follows from; the caller knows that there is room."""
    counts = ints_at(log.counts)
    _write(log.entries + counts[WRITTEN] * ENTRY_BYTES, kind, row, instance, time_s)
    counts[WRITTEN] += 1


@njit(cache=True)
def feed(log: Any, kind: int, row: int, instance: int, time_s: float) -> None:
    """Tell routers of a first token or a completion."""
    counts = ints_at(log.counts)
    _write(log.feed + counts[FED] * ENTRY_BYTES, kind, row, instance, time_s)
    counts[FED] += 1


@njit(cache=True)
def written(log: Any) -> int:
    """Entries that wait to be read."""
    return ints_at(log.counts)[WRITTEN]


@njit(cache=True)
def log_has_room(log: Any) -> bool:
    """Say whether one more step surely fits."""
    return written(log) <= log.room
