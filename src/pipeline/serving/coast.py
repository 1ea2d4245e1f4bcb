"""Runs of steps in which nothing happens but that every running request puts out a token: the same, but faster."""

from __future__ import annotations

from numba import njit

from pipeline.predictor.step_table import StepTable, step_time_s
from pipeline.serving.blocks import charge_moves, extend, used_blocks
from pipeline.serving.observe import observe
from pipeline.serving.state import NONE, READY, WAITING, Machine, Row, int64, running, scheduled
from pipeline.serving.step import spend

FAR = 2**31 - 1
ZERO, ONE = int64(0), int64(1)


@njit(cache=True)
def can_coast(x: Machine) -> bool:
    """Say whether the next steps only decode: every running request lacks one token, and no one can be admitted."""
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
def coast(x: Machine, table: StepTable, limit_s: float) -> None:
    """Do steps that only decode, exactly as `step` does, up to one that completes a request or starts at the limit.

    Stops before a step for which a request finds no block, and before one that may let a blocked request in.
    """
    engine = x.engine
    count = engine.running_count
    steps, context, squares, most, next_block = _plan(x)
    done = ZERO
    start_s, first_end_s, longest_s = engine.clock_s, engine.clock_s, 0.0
    while done < steps and start_s < limit_s:
        if done == next_block:
            goes_on, next_block = _take_blocks(x, done, start_s)
            if not goes_on:
                break
            charge_moves(x, start_s)
        observe(engine, start_s, used_blocks(x.stack))
        time_s, outside_s = step_time_s(table, ZERO, 0.0, count, float(context), count, squares, most)
        spend(x, time_s, outside_s)
        engine.emitted += count
        end_s = start_s + time_s
        if done == 0:
            first_end_s = end_s
        else:
            longest_s = max(longest_s, end_s - start_s)
        start_s = end_s
        squares += 2 * context + count
        context += count
        most += 1
        done += 1
    if done > 0:
        _put_out(x, done, first_end_s, longest_s, start_s)
    engine.clock_s = start_s


@njit(cache=True)
def _plan(x: Machine) -> tuple[int, int, int, int, int]:
    """Return the steps until one completes a request, the KV tokens in the next step, and the first to need blocks.

    The KV tokens as their sum over requests, the sum of their squares, and their maximum.

    `scheduled` holds for each running request the step in which it next needs a block or fills one.
    """
    batch, due = running(x.engine), scheduled(x.engine)
    steps, context, squares, most, first = FAR, ZERO, ZERO, ZERO, FAR
    for k in range(x.engine.running_count):
        job = x.rows[batch[k]]
        steps = min(steps, job.output_tokens - job.generated_tokens - 1)
        tokens = job.computed_tokens + 1
        context += tokens
        squares += tokens * tokens
        most = max(most, tokens)
        due[k] = _next_due(x, job, ZERO)
        first = min(first, due[k])
    return steps, context, squares, most, first


@njit(cache=True)
def _next_due(x: Machine, job: Row, step: int) -> int:
    """First step from `step` on in which the row needs a block, or fills one whose content the trace knows."""
    block_tokens = x.engine.block_tokens
    filled = (job.computed_tokens + step) % block_tokens
    if filled == 0:
        return step
    fills = block_tokens - 1 - filled
    return step + fills if job.cached_blocks < job.chain_blocks else step + fills + 1


@njit(cache=True)
def _take_blocks(x: Machine, step: int, now_s: float) -> tuple[bool, int]:
    """Give blocks to the requests that are due; return whether the run goes on, and the next step with one due."""
    batch, due = running(x.engine), scheduled(x.engine)
    first = FAR
    cached = False
    for k in range(x.engine.running_count):
        if due[k] == step:
            job = x.rows[batch[k]]
            before = job.cached_blocks
            if not extend(x, job, job.computed_tokens + step, ONE, now_s):
                return False, first
            cached |= job.cached_blocks > before
            due[k] = _next_due(x, job, step + 1)
        first = min(first, due[k])
    return not (cached and x.engine.blocked != 0), first


@njit(cache=True)
def _put_out(x: Machine, steps: int, first_end_s: float, longest_s: float, end_s: float) -> None:
    """Book the tokens of so many steps, the first of which ended at first_end_s and the last at end_s."""
    batch = running(x.engine)
    for k in range(x.engine.running_count):
        job = x.rows[batch[k]]
        job.computed_tokens += steps
        job.generated_tokens += steps
        job.max_gap_s = max(job.max_gap_s, longest_s, first_end_s - job.last_token_s)
        job.last_token_s = end_s
