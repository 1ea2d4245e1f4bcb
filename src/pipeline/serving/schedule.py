"""Who computes how many tokens in the next step: the rules of vLLM v1.

Running requests first, in order of admission, each its missing tokens within the budget; one that finds no block
pushes the last admitted out, to compute again later. Then, unless someone was pushed out, waiting requests first come
first served, as long as there is a place, budget, and room for all tokens that exist of the request. Hits below HBM, or
at another instance, are loaded first; meanwhile others go on.
"""

from __future__ import annotations

from numba import njit

from pipeline.serving.blocks import extend, give_back
from pipeline.serving.prefix import LOADS, REFUSED, let_in, tokens_to_do
from pipeline.serving.queues import comes_before, enqueue, push_back, push_front, remove
from pipeline.serving.state import (
    LOADING,
    NONE,
    READY,
    RUNNING,
    WAITING,
    Machine,
    Row,
    int64,
    row_at,
    running,
    scheduled,
)


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
        wanted = 0 if some_end and ends(job) else min(tokens_to_do(x, job), budget)
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
    if job.loads_left > 0:  # it comes back once nothing is on its way to it any more
        push_back(x.engine, x.rows, LOADING, row)
        return
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
        outcome = let_in(x, job, row, now_s)
        if outcome == REFUSED:
            engine.blocked = 1
            break
        remove(engine, x.rows, row)
        if outcome == LOADS:
            push_back(engine, x.rows, LOADING, row)
            continue
        tokens = min(tokens_to_do(x, job), budget)
        if not extend(x, job, job.computed_tokens, tokens, now_s):
            raise RuntimeError("engine: a request was admitted without room for its tokens")
        job.status = RUNNING
        running(engine)[engine.running_count] = row
        scheduled(engine)[engine.running_count] = tokens
        engine.running_count += 1
        budget -= tokens
    return budget


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
