"""State of the engines of a cluster: what the compiled kernel reads and writes.

A *row* is one stay of a request at an engine: a request has one, or, where prefill and decode are split, two (row r of
n at the prefill instance, row n + r at the decode instance). Rows are records of one array; an engine is a record with
arrays of its own (see eviction/records.py). Times are simulated seconds, NaN until they are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof
from numpy.typing import NDArray

from pipeline.eviction.records import make_record, view_float_table, view_ints
from pipeline.placement.stack import Stack, StackPolicies
from pipeline.values import TIERS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Row = Any
Rows = Any
Engine = Any

NONE = -1
int64: Any = np.int64
# As int64: a literal would have every function that it is passed to compiled once more.
WAITING, READY, LOADING, RUNNING, HELD, DONE, ABSENT = map(int64, range(7))
"""Where a row stands. The first three are queues; HELD: done, but its blocks are still needed; ABSENT: not come yet."""
QUEUES = 3
FIRST_TOKEN, COMPLETED, LOAD = map(int64, range(3))
"""What the log tells of."""
QUEUED, IN_BATCH, KV_BLOCKS, TOKENS = range(4)
"""What is observed of an engine: waiting requests, running requests, blocks in use; tokens put out."""
STATES = 3

_TIERS = (len(TIERS),)
ROW = np.dtype(
    [
        # Given. output_tokens: at which the stay ends; chain_start, chain_blocks: the request's full blocks in the
        # trace's block ids (0 blocks without a prefix cache); awaited: others wait for its end; keeps: its blocks stay
        # pinned after its end, until they are let go; remote_tokens: KV that another instance holds for it.
        ("input_tokens", np.int64),
        ("output_tokens", np.int64),
        ("chain_start", np.int64),
        ("chain_blocks", np.int64),
        ("awaited", np.int64),
        ("keeps", np.int64),
        ("remote_tokens", np.int64),
        ("arrival_s", np.float64),
        # When the engine took it from its input: the first boundary between steps from its arrival on.
        ("taken_s", np.float64),
        # Progress. computed_tokens have KV; cached_blocks: pinned blocks of its chain; load_blocks: on their way by
        # source tier, those of another instance as the last; waits_for: row whose load it shares; awaited_loads: its
        # own and that one, while under way; next_row: in a queue.
        ("status", np.int64),
        ("computed_tokens", np.int64),
        ("generated_tokens", np.int64),
        ("cached_blocks", np.int64),
        ("private_blocks", np.int64),
        ("load_blocks", np.int64, _TIERS),
        ("waits_for", np.int64),
        ("awaited_loads", np.int64),
        ("load_order", np.int64),
        ("next_row", np.int64),
        # Told. scheduled_s: first scheduled or first loading; loading_s: time spent loading; max_gap_s: between two
        # tokens, preemptions included; hit_tokens by tier, when first admitted.
        ("hit_tokens", np.int64, _TIERS),
        ("preemption_count", np.int64),
        ("scheduled_s", np.float64),
        ("load_start_s", np.float64),
        ("loading_s", np.float64),
        ("first_token_s", np.float64),
        ("last_token_s", np.float64),
        ("max_gap_s", np.float64),
    ],
    align=True,
)

_ENGINE: list[tuple[Any, ...]] = [
    # Limits. max_idle_steps: more steps than that without completing a request are an error; poll_s: between two
    # polls; coasts: runs of mere decoding are done in one go; plans_ahead: async scheduling.
    ("number", np.int64),
    ("max_running", np.int64),
    ("max_batched_tokens", np.int64),
    ("block_tokens", np.int64),
    ("max_idle_steps", np.int64),
    ("poll_s", np.float64),
    ("coasts", np.int64),
    ("plans_ahead", np.bool_),
    # Queues and batch. clock_s: start of the next step, inf while there is nothing to do; decoding: every running row
    # has put out a token and lacks the next; blocked: the head of the queue did not fit, and nothing has changed since;
    # planned: `scheduled` already holds the next step.
    ("clock_s", np.float64),
    ("head", np.int64, (QUEUES,)),
    ("tail", np.int64, (QUEUES,)),
    ("queued_count", np.int64),
    ("running_count", np.int64),
    ("decoding", np.int64),
    ("blocked", np.int64),
    ("planned", np.bool_),
    ("load_count", np.int64),
    ("evicted_seen", np.int64),
    ("idle_steps", np.int64),
    # Totals. outside_s: the part of step_s that lies outside the profiled range.
    ("step_count", np.int64),
    ("step_s", np.float64),
    ("outside_s", np.float64),
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


class Log(NamedTuple):
    """What happened and is not read yet: entries (capacity,), the first of which, `written` (1,), have been written."""

    entries: Any
    written: Ints
    row_count: int


class Machine(NamedTuple):
    """One instance as the kernel handles it: its own records, and what all share."""

    engine: Engine
    stack: Stack
    policies: StackPolicies
    rows: Rows
    ids: Ints
    links: Any
    log: Log


def make_rows(count: int) -> Rows:
    """Make `count` rows that have not come yet."""
    rows = np.zeros(count, ROW).view(np.recarray)
    rows.status = ABSENT
    rows.waits_for = NONE
    rows.next_row = NONE
    for name in ("taken_s", "scheduled_s", "load_start_s", "first_token_s", "last_token_s"):
        rows[name] = np.nan
    return rows


def make_engine(
    number: int, max_running: int, max_batched_tokens: int, block_tokens: int, loader_blocks: int, bins: int
) -> Engine:
    """Make an idle engine.

    Arrays: running, scheduled (max_running,): rows in order of admission, and their tokens in this step; loader
    (loader_blocks,): row that is loading a block into HBM; batch_s (max_running + 1, 1): time by running requests;
    bins (bins, 4): integral of each value, and tokens, by interval.
    """
    arrays: dict[str, NDArray[Any]] = {
        "running": np.zeros(max_running, np.int32),
        "scheduled": np.zeros(max_running, np.int32),
        "loader": np.full(loader_blocks, NONE, np.int32),
        "batch_s": np.zeros((max_running + 1, 1)),
        "bins": np.zeros((bins, STATES + 1)),
    }
    engine = make_record(_ENGINE, arrays)
    engine.number = number
    engine.max_running = max_running
    engine.max_batched_tokens = max_batched_tokens
    engine.block_tokens = block_tokens
    engine.clock_s = np.inf
    engine.head[:] = NONE
    engine.tail[:] = NONE
    return engine


def make_log(row_count: int) -> Log:
    """Make an empty log with room for what one step can write, at most three entries a row, and more."""
    return Log(np.zeros(4 * row_count + 1024, ENTRY).view(np.recarray), np.zeros(1, np.int64), row_count)


ENGINE_TYPE = typeof(make_engine(0, 1, 1, 1, 0, 2))
ENTRY_TYPE = typeof(make_log(1).entries).dtype
ROW_TYPE = typeof(make_rows(1)).dtype


@njit(cache=True)
def running(engine: Engine) -> NDArray[np.int32]:
    """View the running rows, (max_running,)."""
    return view_ints(engine, engine.running_at, engine.running_rows)


@njit(cache=True)
def scheduled(engine: Engine) -> NDArray[np.int32]:
    """View the tokens of each running row in this step, (max_running,)."""
    return view_ints(engine, engine.scheduled_at, engine.scheduled_rows)


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
def write_log(log: Log, kind: int, row: int, instance: int, time_s: float) -> None:
    """Add an entry; the caller knows that there is room."""
    entry = log.entries[log.written[0]]
    entry.time_s = time_s
    entry.kind = kind
    entry.instance = instance
    entry.row = row
    log.written[0] += 1


@njit(cache=True)
def log_has_room(log: Log) -> bool:
    """Say whether one more step surely fits."""
    return log.entries.size - log.written[0] >= 3 * log.row_count
