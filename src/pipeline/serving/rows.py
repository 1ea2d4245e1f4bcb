"""Rows of a simulation: one stay of a request at an engine, or what is prefetched, as a record of one array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipeline.records import record_at
from pipeline.values import TIERS

Row = Any
Rows = Any

NONE = -1
int64: Any = np.int64
# As int64: a literal would have every function that it is passed to compiled once more.
WAITING, READY, LOADING, RUNNING, HELD, DONE, ABSENT = map(int64, range(7))
"""Where a row stands. The first three are queues; HELD: done, but its blocks are still needed; ABSENT: not come yet."""

_TIERS = (len(TIERS),)
ROW = np.dtype(
    [
        # Given. output_tokens: at which the stay ends; chain_start, chain_blocks: the request's full blocks in the
        # trace's block ids (0 blocks without a prefix cache); awaited: others wait for its end; keeps: its blocks stay
        # pinned after its end, until they are let go; remote_tokens: KV that another instance holds for it; rank: the
        # lower, the sooner it is admitted, among equals by arrival_s. is_prefetch: no request, but what to fetch.
        ("input_tokens", np.int64),
        ("output_tokens", np.int64),
        ("chain_start", np.int64),
        ("chain_blocks", np.int64),
        ("awaited", np.int64),
        ("keeps", np.int64),
        ("remote_tokens", np.int64),
        ("rank", np.float64),
        ("arrival_s", np.float64),
        ("is_prefetch", np.bool_),
        # When the engine took it from its input: the first boundary between steps from its arrival on.
        ("taken_s", np.float64),
        # Progress. computed_tokens have KV; cached_blocks: pinned blocks of its chain; ahead_start, ahead_blocks:
        # pinned ones further on, behind some that it computes; handoff_blocks: on their way from another instance;
        # load_end, next_load: by source tier, where its load ends in the work of the stream, and who waits for that
        # stream next; loads_left: of its own, by stream; waits_for: another row that loads blocks of its;
        # awaited_loads: its own, all together, and that of others, while under way; next_row: in a queue.
        ("status", np.int64),
        ("computed_tokens", np.int64),
        ("generated_tokens", np.int64),
        ("cached_blocks", np.int64),
        ("private_blocks", np.int64),
        ("ahead_start", np.int64),
        ("ahead_blocks", np.int64),
        ("handoff_blocks", np.int64),
        ("load_end", np.float64, _TIERS),
        ("next_load", np.int64, _TIERS),
        ("loads_left", np.int64),
        ("waits_for", np.int64),
        ("awaited_loads", np.int64),
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

_row: Any = record_at(ROW)
ROW_BYTES = ROW.itemsize


def make_rows(count: int) -> Rows:
    """Make `count` rows that have not come yet."""
    rows = np.zeros(count, ROW).view(np.recarray)
    rows.status = ABSENT
    rows.waits_for = NONE
    rows.next_row = NONE
    for name in ("taken_s", "scheduled_s", "load_start_s", "first_token_s", "last_token_s"):
        rows[name] = np.nan
    return rows


@njit(cache=True)
def row_at(rows: int, row: int) -> Row:
    """Find a row by its number, from the address of the first."""
    return _row(rows + row * ROW_BYTES)
