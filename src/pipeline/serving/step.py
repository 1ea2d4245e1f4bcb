"""One step of an engine: schedule, take its time, give out its tokens."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.predictor.step_time import look_up_step
from pipeline.serving.blocks import charge_moves, give_back, known_tokens, used_blocks
from pipeline.serving.observe import observe
from pipeline.serving.schedule import ends, schedule
from pipeline.serving.state import (
    COMPLETED,
    DONE,
    FIRST_TOKEN,
    HELD,
    Engine,
    Machine,
    feed,
    int64,
    row_at,
    running,
    scheduled,
    write_log,
)
from pipeline.serving.transfers import dma_share, slowed_s, streamed_s, write_computed

ZERO, ONE = int64(0), int64(1)


@njit(cache=True)
def step(x: Machine) -> float:
    """Do the step that starts at the engine's clock, which moves to its end; to infinity if there is nothing to do.

    With async scheduling this step was planned when the one before it began, and the next is planned now: all that is
    known of this one by then is that each of its requests puts out a token at its end.
    Returns when others must hear of something in it (a hand-off, the end of an awaited request), else infinity.
    """
    engine = x.engine
    now_s = engine.clock_s
    handoffs = engine.handoff_count
    if engine.plans_ahead:
        _release_ended(x, now_s)
    write_computed(x, now_s)
    busy = engine.planned or schedule(x, now_s)
    if not engine.planned:  # else what moves now moves for the next plan
        charge_moves(x, now_s)
    engine.planned = False
    observe(engine, now_s, used_blocks(x.stack))
    engine.clock_s = np.inf
    engine.decoding = 0
    heard_s = np.inf
    if busy:
        engine.clock_s = now_s + _duration_s(x, now_s)
        if _finish(x, engine.clock_s):
            heard_s = engine.clock_s
        if engine.plans_ahead:
            engine.planned = schedule(x, now_s)
            charge_moves(x, now_s)
            observe(engine, now_s, used_blocks(x.stack))
    return min(heard_s, now_s) if engine.handoff_count > handoffs else heard_s


@njit(cache=True)
def _duration_s(x: Machine, now_s: float) -> float:
    batch, tokens = running(x.engine), scheduled(x.engine)
    prefill, decodes, context, sequences, squares, most = ZERO, ZERO, ZERO, ZERO, ZERO, ZERO
    pairs, chunk_tokens = 0.0, ZERO
    for k in range(x.engine.running_count):
        new = tokens[k]
        if new == 0:
            continue
        job = row_at(x.rows, batch[k])
        present = job.computed_tokens
        if new == 1:
            decodes += 1
            context += present + 1
            squares += (present + 1) * (present + 1)
            most = max(most, present + 1)
        else:
            prefill += new
            pairs += new * (present + new / 2)
            chunk_tokens += present
        sequences += 1  # logits are computed of an unfinished prompt too, and thrown away
    seen = x.engine.attended_ratio
    time_s, outside_s = look_up_step(
        x.table, prefill, pairs, decodes, seen * context, sequences, int64(seen * seen * squares), int64(seen * most)
    )
    check_duration(time_s)
    time_s += slowed_s(x.engine, dma_share(x, now_s), time_s, float(context))
    if x.engine.streams:
        time_s += streamed_s(x.engine, time_s, context - decodes, chunk_tokens, prefill + decodes)
    count_steps(x.engine, ONE)
    x.engine.step_s += time_s
    x.engine.outside_s += outside_s
    return time_s


@njit(cache=True)
def check_duration(time_s: float) -> None:
    """Raise ValueError unless a step can take that long."""
    if not 0 <= time_s < np.inf:
        raise ValueError("engine: the step model gives a time that is negative or not a number")


@njit(cache=True)
def count_steps(engine: Engine, steps: int) -> None:
    """Count steps; raise RuntimeError where too many have passed without a completion."""
    engine.step_count += steps
    engine.idle_steps += steps
    if engine.idle_steps > engine.max_idle_steps:
        raise RuntimeError("engine: no request completes any more")


@njit(cache=True)
def _finish(x: Machine, end_s: float) -> bool:
    """Give out the tokens of the step; True if others wait for a request that it completed."""
    engine = x.engine
    batch, tokens = running(engine), scheduled(engine)
    heard, all_decoding = False, True
    left = 0
    for k in range(engine.running_count):
        row = int64(batch[k])
        job = row_at(x.rows, row)
        job.computed_tokens += tokens[k]
        if tokens[k] > 0 and job.computed_tokens == known_tokens(job):
            _put_out(x, row, end_s)
            if ends(job):
                _complete(x, row, end_s)
                heard |= job.awaited != 0
                if not engine.plans_ahead:
                    continue
        all_decoding &= job.generated_tokens > 0 and known_tokens(job) - job.computed_tokens == 1
        batch[left] = row
        left += 1
    engine.running_count = left
    engine.decoding = all_decoding
    return heard


@njit(cache=True)
def _put_out(x: Machine, row: int, end_s: float) -> None:
    job = row_at(x.rows, row)
    job.generated_tokens += 1
    x.engine.emitted += 1
    if np.isnan(job.last_token_s):
        job.first_token_s = end_s
        feed(x.log, FIRST_TOKEN, row, x.engine.number, end_s)
    else:
        job.max_gap_s = max(job.max_gap_s, end_s - job.last_token_s)
    job.last_token_s = end_s


@njit(cache=True)
def _complete(x: Machine, row: int, end_s: float) -> None:
    job = row_at(x.rows, row)
    job.status = HELD if job.keeps else DONE
    if not (job.keeps or x.engine.plans_ahead):
        give_back(x, job, end_s)
        x.engine.blocked = 0
    x.engine.idle_steps = 0
    feed(x.log, COMPLETED, row, x.engine.number, end_s)
    if job.awaited:
        write_log(x.log, COMPLETED, row, x.engine.number, end_s)


@njit(cache=True)
def _release_ended(x: Machine, now_s: float) -> None:
    """Free the places and blocks of the requests that ended with the step before; the plan keeps the others."""
    engine = x.engine
    batch, tokens = running(engine), scheduled(engine)
    left = 0
    for k in range(engine.running_count):
        job = row_at(x.rows, batch[k])
        if ends(job):
            engine.blocked = 0
            if not job.keeps:
                give_back(x, job, now_s)
            continue
        batch[left], tokens[left] = batch[k], tokens[k]
        left += 1
    engine.running_count = left
