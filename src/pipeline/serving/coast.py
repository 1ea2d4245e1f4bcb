"""Runs of steps in which nothing happens but that every running request puts out a token: the same, but faster.

A run may be interrupted and go on: what it has done so far stands in the engine (`run_*`), and is booked to the rows
when it ends.
"""

from __future__ import annotations

from numba import njit

from pipeline.placement.stack import can_hold
from pipeline.predictor.step_time import (
    cell,
    decode_contexts,
    decode_counts,
    decode_part_s,
    is_joint,
    linear_part_s,
    look_up_step,
)
from pipeline.serving.blocks import charge_moves, extend, used_blocks
from pipeline.serving.observe import give_out, observe
from pipeline.serving.schedule import ends
from pipeline.serving.state import (
    KV_BLOCKS,
    NONE,
    QUEUED,
    READY,
    WAITING,
    Engine,
    Machine,
    Row,
    dues,
    int64,
    row_at,
    running,
    scheduled,
)
from pipeline.serving.step import check_duration, count_steps
from pipeline.serving.transfers import dma_share, may_start_s, slowed_s, streamed_s, write_computed

FAR = 2**31 - 1
QUIET = 1 - 1e-9
"""Keeps the sum of many steps from being less than so many times the least by rounding."""
ZERO, ONE = int64(0), int64(1)


@njit(cache=True)
def can_coast(x: Machine) -> bool:
    """Say whether the next steps may only decode: every running request lacks one token, and no one can be admitted."""
    engine = x.engine
    if (
        not (engine.coasts and engine.decoding)
        or engine.running_count == 0
        or engine.running_count > engine.max_batched_tokens
    ):
        return False
    nobody = engine.head[WAITING] == NONE and engine.head[READY] == NONE
    full = engine.running_count >= min(engine.max_running, engine.max_batched_tokens)
    return nobody or full or engine.blocked != 0


@njit(cache=True)
def coast(x: Machine, limit_s: float) -> bool:
    """Do steps that only decode, exactly as `step` does, up to one that completes a request or starts at the limit.

    Stops before a step for which a request finds no block, and before one that may let a blocked request in. True if
    the run goes on from there: it was stopped by the limit alone.
    """
    engine = x.engine
    if not engine.coasting:
        if not _begin(x):
            return False
        observe(engine, engine.clock_s, used_blocks(x.stack))
    elif engine.values[QUEUED] != engine.queued_count:
        observe(engine, engine.clock_s, engine.values[KV_BLOCKS])
    while engine.run_done < engine.run_steps and engine.clock_s < limit_s:
        if engine.clock_s >= engine.bin_end_s:
            observe(engine, engine.clock_s, engine.values[KV_BLOCKS])
        if may_start_s(x, engine.clock_s) > engine.clock_s:
            break
        write_computed(x, engine.clock_s)
        if engine.run_done == engine.run_due:
            goes_on, engine.run_due = _take_blocks(x, engine.run_done, engine.clock_s)
            if not goes_on:
                break
            observe(engine, engine.clock_s, used_blocks(x.stack))
        share, changes = _charge(x)
        last, stop_s = _until(x, limit_s, changes)
        if is_joint(x.table):
            _decode_jointly(x, last, stop_s, share)
        else:
            _decode(x, last, stop_s, share)
    else:
        if engine.run_done < engine.run_steps:
            engine.quiet_s = _quiet_s(x)
            return True
    end_run(x)
    return False


@njit(cache=True)
def _charge(x: Machine) -> tuple[float, bool]:
    """Charge what moves; return the share of HBM's bandwidth that transfers take, and whether it is another next step.

    With async scheduling it is: what moves for the next plan slows down the next step, not the one that has begun.
    """
    share, moves = dma_share(x, x.engine.clock_s), x.stack.pending_count > 0
    charge_moves(x, x.engine.clock_s)
    if x.engine.plans_ahead:
        return share, moves
    return dma_share(x, x.engine.clock_s), False


@njit(cache=True)
def _until(x: Machine, limit_s: float, changes: bool) -> tuple[int, float]:
    """Up to which step, and until when, steps may be done in one go.

    One at a time where the next takes another time, while blocks wait to be written at its end, or where writes are so
    far behind that the next must wait.
    """
    engine = x.engine
    last, stop_s = min(engine.run_steps, engine.run_due), min(limit_s, engine.bin_end_s)
    if x.network.active_count > 0:
        stop_s = min(stop_s, x.network.change_s)
    if changes or x.stack.first_write != NONE or may_start_s(x, engine.clock_s) > engine.clock_s:
        last = min(last, engine.run_done + 1)
    return last, stop_s


@njit(cache=True)
def _quiet_s(x: Machine) -> float:
    """Until when at the least a run goes on: nobody may come in before it ends, and its blocks fit."""
    engine = x.engine
    steps = engine.run_steps - engine.run_done - 1
    needed = engine.running_count * (steps // engine.block_tokens + 2)
    if engine.blocked != 0 or x.network.awaited_count > 0 or not can_hold(x.stack, x.tiers, needed):
        return engine.clock_s
    return engine.clock_s + QUIET * steps * x.table.least_decode_s


@njit(cache=True)
def end_run(x: Machine) -> None:
    """Book what a run has done so far to its rows."""
    engine = x.engine
    engine.coasting = False
    if engine.run_done == 0:
        return
    batch = running(engine)
    for k in range(engine.running_count):
        job = row_at(x.rows, batch[k])
        job.computed_tokens += engine.run_done
        job.generated_tokens += engine.run_done
        job.max_gap_s = max(job.max_gap_s, engine.run_longest_s, engine.run_first_end_s - job.last_token_s)
        job.last_token_s = engine.clock_s
        scheduled(engine)[k] = 1


@njit(cache=True)
def _begin(x: Machine) -> bool:
    """Plan a run; `due` then holds for each running request the step in which it next needs or fills a block.

    False if there is none: with async scheduling, where the next step is planned already and is not mere decoding.
    """
    engine = x.engine
    batch, due = running(engine), dues(engine)
    steps, context, squares, most, first = FAR, ZERO, ZERO, ZERO, FAR
    for k in range(engine.running_count):
        job = row_at(x.rows, batch[k])
        if engine.plans_ahead and (
            not engine.planned or scheduled(engine)[k] != 1 or job.generated_tokens == 0 or ends(job)
        ):
            return False
        steps = min(steps, job.output_tokens - job.generated_tokens - 1)
        tokens = job.computed_tokens + 1
        context += tokens
        squares += tokens * tokens
        most = max(most, tokens)
        due[k] = _next_due(x, job, ZERO)
        first = min(first, due[k])
    engine.coasting = True
    engine.run_done, engine.run_steps, engine.run_due = 0, steps, first
    engine.run_context, engine.run_squares, engine.run_most = context, squares, most
    engine.run_longest_s = 0.0
    return True


@njit(cache=True)
def _decode(x: Machine, last: int, stop_s: float, share: float) -> None:
    """Do steps up to the last, or one that starts at or after `stop_s`; transfers take a share of HBM's bandwidth."""
    engine, table = x.engine, x.table
    count, context, done = engine.running_count, engine.run_context, engine.run_done
    requests = float(count)
    linear_s, linear_outside_s = linear_part_s(table, count, count)
    counts, contexts = cell(decode_counts(table), requests), decode_contexts(table)
    seen, streams = engine.attended_ratio, engine.streams
    at = cell(contexts, seen * context / count)
    first, start_s = done, engine.clock_s
    longest_s, step_s, outside_s = engine.run_longest_s, engine.step_s, engine.outside_s
    while True:
        mean = seen * context / count
        while at < contexts.size and contexts[at] < mean:
            at += 1
        part_s, outside = decode_part_s(table, counts, at, requests, mean)
        time_s = linear_s + part_s
        check_duration(time_s)
        if share > 0.0:
            time_s += slowed_s(engine, share, time_s, float(context))
        if streams:
            time_s += streamed_s(engine, time_s, context - count, ZERO, count)
        step_s += time_s
        outside_s += linear_outside_s + part_s if outside else linear_outside_s
        end_s = start_s + time_s
        if done == 0:
            engine.run_first_end_s = end_s
        else:
            longest_s = max(longest_s, end_s - start_s)
        start_s = end_s
        context += count
        done += 1
        if done >= last or start_s >= stop_s:
            break
    engine.step_s, engine.outside_s, engine.run_longest_s = step_s, outside_s, longest_s
    _advance(engine, done - first, start_s, context)


@njit(cache=True)
def _decode_jointly(x: Machine, last: int, stop_s: float, share: float) -> None:
    """As `_decode`, where attention depends on how unequal the lengths of the requests are."""
    engine, table = x.engine, x.table
    count, seen = engine.running_count, engine.attended_ratio
    while True:
        context, squares = engine.run_context, engine.run_squares
        square_sum, most = int64(seen * seen * squares), int64(seen * engine.run_most)
        time_s, outside_s = look_up_step(table, ZERO, 0.0, count, seen * context, count, square_sum, most)
        check_duration(time_s)
        if share > 0.0:
            time_s += slowed_s(engine, share, time_s, float(context))
        if engine.streams:
            time_s += streamed_s(engine, time_s, context - count, ZERO, count)
        engine.step_s += time_s
        engine.outside_s += outside_s
        end_s = engine.clock_s + time_s
        if engine.run_done == 0:
            engine.run_first_end_s = end_s
        else:
            engine.run_longest_s = max(engine.run_longest_s, end_s - engine.clock_s)
        engine.run_squares = squares + 2 * context + count
        engine.run_most += 1
        _advance(engine, ONE, end_s, context + count)
        if engine.run_done >= last or end_s >= stop_s:
            break


@njit(cache=True)
def _advance(engine: Engine, steps: int, end_s: float, context: int) -> None:
    """Note that the run has done so many steps more, the last of which ends at `end_s`."""
    count_steps(engine, steps)
    engine.run_done += steps
    engine.run_context = context
    engine.clock_s = end_s
    give_out(engine, steps * engine.running_count, engine.running_count, end_s)


@njit(cache=True)
def _extended(x: Machine, job: Row, step: int) -> int:
    """Tokens that have KV before the one for which blocks are given at the start of a step: its own, or the next's."""
    return job.computed_tokens + step + x.engine.plans_ahead


@njit(cache=True)
def _next_due(x: Machine, job: Row, step: int) -> int:
    """First step from `step` on in which the row needs a block, or fills one whose content the trace knows."""
    block_tokens = x.engine.block_tokens
    filled = _extended(x, job, step) % block_tokens
    if filled == 0:
        return step
    fills = block_tokens - 1 - filled
    return step + fills if job.cached_blocks < job.chain_blocks else step + fills + 1


@njit(cache=True)
def _take_blocks(x: Machine, step: int, now_s: float) -> tuple[bool, int]:
    """Give blocks to the requests that are due; return whether the run goes on, and the next step with one due."""
    batch, due = running(x.engine), dues(x.engine)
    first = FAR
    cached = False
    for k in range(x.engine.running_count):
        if due[k] == step:
            job = row_at(x.rows, batch[k])
            before = job.cached_blocks
            if not extend(x, job, _extended(x, job, step), ONE, now_s):
                return False, first
            cached |= job.cached_blocks > before
            due[k] = _next_due(x, job, step + 1)
        first = min(first, due[k])
    return not (cached and x.engine.blocked != 0), first
