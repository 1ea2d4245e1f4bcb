"""How a row gets its prefix: what of it is taken as hits, loaded, and arrives.

A row that waits for nothing but what it loads is out of the batch meanwhile. With a split prefix it computes the first
part in the batch while what lies `ahead` is loaded, and skips that once both are there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.base import ONBOARD, PREFETCH
from pipeline.placement.stack import acquire, can_hold, match, record_misses, reserve
from pipeline.placement.state import DRAM, HBM, IN_HBM, REMOTE, SSD, where
from pipeline.serving.blocks import (
    blocks_for,
    cache_full,
    give_back,
    known_tokens,
    leading_hits,
    pending_loader,
    pinned_among,
)
from pipeline.serving.load_rule import taken
from pipeline.serving.queues import enqueue, remove
from pipeline.serving.state import (
    HANDOFF,
    LOADING,
    NONE,
    READY,
    WAITING,
    Machine,
    Row,
    block_ids,
    int64,
    loader,
    row_at,
    running,
    write_log,
)
from pipeline.serving.transfers import due_s, start_load

REFUSED, RUNS, LOADS = range(3)
ZERO = int64(0)


@njit(cache=True)
def tokens_to_do(x: Machine, job: Row) -> int:
    """Tokens that the row may compute next: all that it lacks, or those up to what is being loaded ahead."""
    if job.ahead_blocks > 0:
        reached = job.computed_tokens == job.ahead_start * x.engine.block_tokens
        if not (reached and job.awaited_loads == 0):
            return int(job.ahead_start * x.engine.block_tokens - job.computed_tokens)
        job.cached_blocks += job.ahead_blocks
        job.computed_tokens += job.ahead_blocks * x.engine.block_tokens
        job.ahead_blocks = 0
    return int(known_tokens(job) - job.computed_tokens)


@njit(cache=True)
def let_in(x: Machine, job: Row, row: int, now_s: float) -> int:
    """Say whether there is room for all tokens that exist of the row; if so, give it its prefix."""
    needed = blocks_for(known_tokens(job), x.engine.block_tokens)
    if job.status == READY:
        return RUNS if can_hold(x.stack, x.tiers, needed - job.cached_blocks - job.private_blocks) else REFUSED
    found, pinned, looked_up = leading_hits(x, job, now_s)
    if x.engine.patience_s < np.inf:
        found = _due_soon(x, job, found, now_s)
        pinned = pinned_among(x, job, ZERO, found)
    front, back, end = taken(x, job, found, now_s)
    if front < found:
        pinned = pinned_among(x, job, ZERO, front) + pinned_among(x, job, back, end)
    if not can_hold(x.stack, x.tiers, needed - pinned):
        return REFUSED
    record_misses(x.stack, looked_up - front - (end - back))
    return LOADS if _take_prefix(x, job, row, front, back, end, now_s) else RUNS


@njit(cache=True)
def _due_soon(x: Machine, job: Row, found: int, now_s: float) -> int:
    """How many of the row's first `found` blocks are there, or due soon enough where they are being prefetched."""
    loading, ids = loader(x.engine), block_ids(x)
    for k in range(found if loading.size > 0 else 0):
        other = loading[ids[job.chain_start + k]]
        if other == NONE or not row_at(x.rows, other).is_prefetch:
            continue
        if due_s(x, row_at(x.rows, other)) - now_s > x.engine.patience_s:
            return k
    return found


@njit(cache=True)
def fetch(x: Machine, row: int, now_s: float) -> None:
    """Bring up what the chain of a row that is no request has below HBM; nothing if there is no room for all of it."""
    job, ids = row_at(x.rows, row), block_ids(x)
    if job.loads_left > 0:
        return
    start = job.chain_start
    run = match(x.stack, x.tiers, ids, start, start + job.chain_blocks, now_s)
    _mark_loading(x, row, start, run)
    ok, _, dram, ssd, remote = acquire(x.stack, x.tiers, ids, start, run, PREFETCH, now_s)
    for tier, blocks in ((DRAM, dram), (SSD, ssd), (REMOTE, remote)):
        if blocks > 0:
            start_load(x, job, row, tier, blocks, PREFETCH, now_s)
    if ok:
        job.cached_blocks = run
        job.awaited_loads = 1
        job.load_start_s = now_s
    if job.loads_left == 0:
        _unmark_loading(x, row, start, run)
        give_back(x, job, now_s)


@njit(cache=True)
def _take_prefix(x: Machine, job: Row, row: int, front: int, back: int, end: int, now_s: float) -> bool:
    """Give the row its first `front` blocks, and those from `back` to `end`; True if it must wait for some to arrive.

    It need not where the second part is not empty: it has the blocks between to compute.
    """
    first_time = bool(np.isnan(job.scheduled_s))
    shared = _take(x, job, row, ZERO, front, first_time, now_s)
    job.cached_blocks = front
    job.computed_tokens = front * x.engine.block_tokens
    job.ahead_start, job.ahead_blocks = back, end - back
    if end > back:
        ahead = _take(x, job, row, back, end, first_time, now_s)
        shared = max(shared, ahead)
    if first_time:
        job.scheduled_s = now_s
    if job.remote_tokens > 0:
        job.handoff_blocks = blocks_for(job.remote_tokens, x.engine.block_tokens) - front
        reserve(x.stack, x.tiers, job.handoff_blocks, now_s)
        job.private_blocks = job.handoff_blocks
        job.loads_left += 1
        x.engine.handoff_count += 1
        write_log(x.log, HANDOFF, row, x.engine.number, now_s)
    job.waits_for = shared
    job.awaited_loads = int(job.loads_left > 0) + int(shared != NONE)
    if job.awaited_loads > 0:
        job.load_start_s = now_s
    return job.awaited_loads > 0 and job.ahead_blocks == 0


@njit(cache=True)
def _take(x: Machine, job: Row, row: int, first: int, last: int, tells: bool, now_s: float) -> int:
    """Take the row's blocks from `first` to `last`, all of them found; return who else is loading any, -1 if no one."""
    start, run = job.chain_start + first, last - first
    shared = pending_loader(x, row, start, run)
    _mark_loading(x, row, start, run)
    _, hbm, dram, ssd, remote = acquire(x.stack, x.tiers, block_ids(x), start, run, ONBOARD, now_s)
    for tier, blocks in ((HBM, hbm), (DRAM, dram), (SSD, ssd), (REMOTE, remote)):
        if tells:
            job.hit_tokens[tier] += blocks * x.engine.block_tokens
        if tier != HBM and blocks > 0:
            start_load(x, job, row, tier, blocks, ONBOARD, now_s)
    return shared


@njit(cache=True)
def _mark_loading(x: Machine, row: int, start: int, run: int) -> None:
    loading, places, ids = loader(x.engine), where(x.stack), block_ids(x)
    if loading.size > 0:
        for k in range(start, start + run):
            if places[ids[k]] & IN_HBM == 0:
                loading[ids[k]] = row


@njit(cache=True)
def _unmark_loading(x: Machine, row: int, start: int, run: int) -> None:
    loading, ids = loader(x.engine), block_ids(x)
    if loading.size > 0:
        for k in range(start, start + run):
            if loading[ids[k]] == row:
                loading[ids[k]] = NONE


@njit(cache=True)
def arrived(x: Machine, row: int, now_s: float) -> None:
    """Take note that all that the row was loading has arrived: it, and those who share its blocks, may go on."""
    job = row_at(x.rows, row)
    _unmark_loading(x, row, job.chain_start, job.chain_blocks)
    if job.remote_tokens > 0:
        job.computed_tokens = job.remote_tokens
        cache_full(x, job, job.remote_tokens, now_s)
        job.remote_tokens = 0
    _one_less(x, row, now_s)
    for k in range(x.engine.running_count):
        _share(x, int64(running(x.engine)[k]), row, now_s)
    other = x.engine.head[LOADING]
    while other != NONE:
        following = row_at(x.rows, other).next_row
        _share(x, other, row, now_s)
        other = following


@njit(cache=True)
def _share(x: Machine, other: int, row: int, now_s: float) -> None:
    """Let a row that waits for another's load go on, unless a third one loads some of its blocks."""
    job = row_at(x.rows, other)
    if job.waits_for == row:
        job.waits_for = pending_loader(x, other, job.chain_start, job.cached_blocks)
        if job.waits_for == NONE:
            job.waits_for = pending_loader(x, other, job.chain_start + job.ahead_start, job.ahead_blocks)
        if job.waits_for == NONE:
            _one_less(x, other, now_s)


@njit(cache=True)
def _one_less(x: Machine, row: int, now_s: float) -> None:
    job = row_at(x.rows, row)
    job.awaited_loads -= 1
    if job.awaited_loads > 0:
        return
    job.loading_s += now_s - job.load_start_s
    if job.is_prefetch:
        give_back(x, job, now_s)
    elif job.status == LOADING:
        remove(x.engine, x.rows, row)
        held = job.cached_blocks + job.private_blocks
        enqueue(x.engine, x.rows, READY if held > 0 else WAITING, row)
    x.engine.blocked = 0
