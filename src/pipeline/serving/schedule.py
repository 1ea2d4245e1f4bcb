"""Who computes how many tokens in the next step: the rules of vLLM v1.

Running requests first, in order of admission, each its missing tokens within the budget; one that finds no block
pushes the last admitted out, to compute again later. Then, unless someone was pushed out, waiting requests first come
first served, as long as there is a place, budget, and room for all tokens that exist of the request. Hits below HBM, or
at another instance, are loaded first; meanwhile others go on.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.stack import acquire, can_hold, record_misses, reserve
from pipeline.placement.state import DRAM, HBM, IN_HBM, REMOTE, SSD, where
from pipeline.serving.blocks import (
    blocks_for,
    cache_full,
    extend,
    give_back,
    known_tokens,
    leading_hits,
    pending_loader,
    pinned_among,
)
from pipeline.serving.load_rule import taken
from pipeline.serving.queues import comes_before, enqueue, push_back, push_front, remove
from pipeline.serving.state import (
    HANDOFF,
    LOADING,
    NONE,
    READY,
    RUNNING,
    WAITING,
    Machine,
    Row,
    block_ids,
    int64,
    loader,
    row_at,
    running,
    scheduled,
    write_log,
)
from pipeline.serving.transfers import start_load

REFUSED, RUNS, LOADS = range(3)


@njit(cache=True)
def schedule(x: Machine, now_s: float) -> bool:
    """Fill `scheduled` for a step that starts now; False if there is nothing to compute."""
    budget = x.engine.max_batched_tokens
    budget, preempted = _schedule_running(x, budget, now_s)
    while preempted and budget == x.engine.max_batched_tokens and x.engine.running_count > 0:
        # Who asked first was itself pushed out: such a step computes nothing and takes no time.
        budget, preempted = _schedule_running(x, budget, now_s)
    x.engine.blocked = 0
    # A step in which all were pushed out computes nothing and takes no time: the next one is this one.
    if not preempted or x.engine.running_count == 0:
        budget = _admit(x, budget, now_s)
        while x.engine.running_count == 0 and _give_way(x, now_s):
            budget = _admit(x, budget, now_s)
    return budget < x.engine.max_batched_tokens


@njit(cache=True)
def _schedule_running(x: Machine, budget: int, now_s: float) -> tuple[int, bool]:
    batch, tokens = running(x.engine), scheduled(x.engine)
    preempted = False
    some_end = x.engine.plans_ahead
    k = 0
    while k < x.engine.running_count:
        row = int64(batch[k])
        job = row_at(x.rows, row)
        wanted = 0 if some_end and ends(job) else min(known_tokens(job) - job.computed_tokens, budget)
        while wanted > 0 and not extend(x, job, job.computed_tokens, wanted, now_s):
            preempted = True
            victim = _victim(x)
            if victim < k:  # scheduled in this step already
                budget += tokens[victim]
                k -= 1
            out = _take_out(x, victim)
            _preempt(x, out, now_s)
            if out == row:
                tokens[k : x.engine.running_count] = 0
                return budget, preempted
        tokens[k] = wanted
        budget -= wanted
        k += 1
    return budget, preempted


@njit(cache=True)
def _victim(x: Machine) -> int:
    """Position of the running row that must go: the last admitted, or the last by rank and arrival."""
    batch = running(x.engine)
    last = x.engine.running_count - 1
    if x.engine.preempts_by_rank:
        for k in range(last - 1, -1, -1):
            if comes_before(x.rows, batch[last], batch[k]):
                last = k
    return last


@njit(cache=True)
def _take_out(x: Machine, position: int) -> int:
    """Take the row at a position out of the batch, and return it."""
    batch, tokens = running(x.engine), scheduled(x.engine)
    row = int64(batch[position])
    x.engine.running_count -= 1
    for k in range(position, x.engine.running_count):
        batch[k], tokens[k] = batch[k + 1], tokens[k + 1]
    return row


@njit(cache=True)
def ends(job: Row) -> bool:
    """Say whether the row has put out its last token, or will with the step under way."""
    return job.generated_tokens == job.output_tokens


@njit(cache=True)
def _preempt(x: Machine, row: int, now_s: float) -> None:
    """Take the row's blocks away and put it at the head of the queue, unless it ends with the step under way."""
    job = row_at(x.rows, row)
    if not (ends(job) and job.keeps):
        give_back(x, job, now_s)
    if ends(job):
        return
    job.computed_tokens = 0
    job.preemption_count += 1
    if x.engine.ranks:
        enqueue(x.engine, x.rows, WAITING, row)
    else:
        push_front(x.engine, x.rows, WAITING, row)


@njit(cache=True)
def _admit(x: Machine, budget: int, now_s: float) -> int:
    """Admit from the queues, the loaded first; return the budget left."""
    engine = x.engine
    while budget > 0 and engine.running_count < engine.max_running:
        # Those that were loaded hold blocks: let them go on, whoever waits.
        row = engine.head[READY] if engine.head[READY] != NONE else engine.head[WAITING]
        if row == NONE:
            break
        job = row_at(x.rows, row)
        outcome = _let_in(x, job, row, now_s)
        if outcome == REFUSED:
            engine.blocked = 1
            break
        remove(engine, x.rows, row)
        if outcome == LOADS:
            push_back(engine, x.rows, LOADING, row)
            continue
        tokens = min(known_tokens(job) - job.computed_tokens, budget)
        if not extend(x, job, job.computed_tokens, tokens, now_s):
            raise RuntimeError("engine: a request was admitted without room for its tokens")
        job.status = RUNNING
        running(engine)[engine.running_count] = row
        scheduled(engine)[engine.running_count] = tokens
        engine.running_count += 1
        budget -= tokens
    return budget


@njit(cache=True)
def _let_in(x: Machine, job: Row, row: int, now_s: float) -> int:
    """Say whether there is room for all tokens that exist of the row; if so, give it its prefix."""
    needed = blocks_for(known_tokens(job), x.engine.block_tokens)
    if job.status == READY:
        return RUNS if can_hold(x.stack, x.tiers, needed - job.cached_blocks - job.private_blocks) else REFUSED
    found, pinned, looked_up = leading_hits(x, job, now_s)
    run = taken(x, job, found, now_s)
    if run < found:
        pinned = pinned_among(x, job, run)
    if not can_hold(x.stack, x.tiers, needed - pinned):
        return REFUSED
    return LOADS if _take_prefix(x, job, row, run, looked_up, now_s) else RUNS


@njit(cache=True)
def _take_prefix(x: Machine, job: Row, row: int, run: int, looked_up: int, now_s: float) -> bool:
    """Give the row its `run` leading hits; True if it must wait for some of them to arrive."""
    shared = pending_loader(x, job, run)
    _mark_loading(x, job, row, run)
    _, hbm, dram, ssd, remote = acquire(x.stack, x.tiers, block_ids(x), job.chain_start, run, now_s)
    record_misses(x.stack, looked_up - run)
    job.cached_blocks = run
    job.computed_tokens = run * x.engine.block_tokens
    if np.isnan(job.scheduled_s):
        job.scheduled_s = now_s
        for tier, blocks in ((HBM, hbm), (DRAM, dram), (SSD, ssd), (REMOTE, remote)):
            job.hit_tokens[tier] = blocks * x.engine.block_tokens
    for tier, blocks in ((DRAM, dram), (SSD, ssd), (REMOTE, remote)):
        if blocks > 0:
            start_load(x, job, row, tier, blocks, now_s)
    if job.remote_tokens > 0:
        job.handoff_blocks = blocks_for(job.remote_tokens, x.engine.block_tokens) - run
        reserve(x.stack, x.tiers, job.handoff_blocks, now_s)
        job.private_blocks = job.handoff_blocks
        job.loads_left += 1
        x.engine.handoff_count += 1
        write_log(x.log, HANDOFF, row, x.engine.number, now_s)
    job.waits_for = shared
    job.awaited_loads = int(job.loads_left > 0) + int(shared != NONE)
    if job.loads_left > 0:
        job.load_order = x.engine.load_count
        x.engine.load_count += 1
    if job.awaited_loads > 0:
        job.load_start_s = now_s
    return job.awaited_loads > 0


@njit(cache=True)
def _mark_loading(x: Machine, job: Row, row: int, run: int) -> None:
    loading, places, ids = loader(x.engine), where(x.stack), block_ids(x)
    if loading.size > 0:
        for k in range(job.chain_start, job.chain_start + run):
            if places[ids[k]] & IN_HBM == 0:
                loading[ids[k]] = row


@njit(cache=True)
def arrived(x: Machine, row: int, now_s: float) -> None:
    """Take note that all that the row was loading has arrived: it, and those who share its blocks, may go on."""
    job = row_at(x.rows, row)
    loading, ids = loader(x.engine), block_ids(x)
    if loading.size > 0:
        for k in range(job.chain_start, job.chain_start + job.cached_blocks):
            if loading[ids[k]] == row:
                loading[ids[k]] = NONE
    if job.remote_tokens > 0:
        job.computed_tokens = job.remote_tokens
        cache_full(x, job, job.remote_tokens, now_s)
        job.remote_tokens = 0
    _one_less(x, row, now_s)
    other = x.engine.head[LOADING]
    while other != NONE:
        following = row_at(x.rows, other).next_row
        if row_at(x.rows, other).waits_for == row:
            row_at(x.rows, other).waits_for = NONE
            _one_less(x, other, now_s)
        other = following


@njit(cache=True)
def _one_less(x: Machine, row: int, now_s: float) -> None:
    job = row_at(x.rows, row)
    job.awaited_loads -= 1
    if job.awaited_loads == 0:
        job.loading_s += now_s - job.load_start_s
        remove(x.engine, x.rows, row)
        enqueue(x.engine, x.rows, READY, row)
        x.engine.blocked = 0


@njit(cache=True)
def _give_way(x: Machine, now_s: float) -> bool:
    """Push out the last loaded row where several hold so much that none can start; False if that is not so."""
    head, last = x.engine.head[READY], x.engine.tail[READY]
    if x.engine.blocked == 0 or head == last or x.engine.head[LOADING] != NONE:
        return False
    x.engine.blocked = 0
    remove(x.engine, x.rows, last)
    _preempt(x, last, now_s)
    return True
