"""Whether to load leading hits below HBM, or to compute them again: the rules of `Placement.load_or_recompute`."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.base import ALWAYS_LOAD, ALWAYS_RECOMPUTE, DEADLINE
from pipeline.placement.lower import tier_with
from pipeline.placement.state import DRAM, HBM, REMOTE, SSD, Ints
from pipeline.predictor.step_time import look_up_step
from pipeline.serving.blocks import known_tokens
from pipeline.serving.link import would_arrive_s
from pipeline.serving.state import Machine, Row, block_ids, int64, row_at, running

ZERO, ONE = int64(0), int64(1)
TIERS = REMOTE + 1


@njit(cache=True)
def taken(x: Machine, job: Row, run: int, now_s: float) -> int:
    """How many of the `run` leading blocks, each in some tier, the row is to take as hits; the rest it computes."""
    rule = x.stack.load_rule
    if job.remote_tokens > 0 or (rule == ALWAYS_LOAD and x.stack.least_load_tokens == 0):
        return run
    leading = np.zeros(TIERS, np.int64)
    _lead(x, job, run, now_s, leading)
    in_hbm = leading[HBM]
    too_few = (run - in_hbm) * x.engine.block_tokens < x.stack.least_load_tokens
    if in_hbm == run or rule == ALWAYS_RECOMPUTE or too_few:
        return int(in_hbm)
    if rule == ALWAYS_LOAD:
        return run
    if rule == DEADLINE:
        return run if _load_s(x, job, run, now_s) <= x.stack.deadline_s else int(in_hbm)
    best, least_s = run, _cost_s(x, job, run, now_s)
    for tier in range(SSD, HBM - 1, -1):
        if leading[tier] < best:
            cost_s = _cost_s(x, job, leading[tier], now_s)
            if cost_s < least_s:
                best, least_s = leading[tier], cost_s
    return int(best)


@njit(cache=True)
def _lead(x: Machine, job: Row, run: int, now_s: float, leading: Ints) -> None:
    """Fill `leading` (4,): the leading blocks of the run that lie in each tier or a faster one."""
    ids = block_ids(x)
    k = ZERO
    for tier in range(TIERS):
        while k < run and tier_with(x.stack, x.tiers, ids[job.chain_start + k], now_s) <= tier:
            k += 1
        leading[tier] = k


@njit(cache=True)
def _load_s(x: Machine, job: Row, take: int, now_s: float) -> float:
    """Time until the blocks below HBM among the first `take` are there, behind what their links have to do already."""
    ids = block_ids(x)
    below = np.zeros(TIERS, np.int64)
    for k in range(job.chain_start, job.chain_start + take):
        below[tier_with(x.stack, x.tiers, ids[k], now_s)] += 1
    end_s = now_s
    for tier in range(DRAM, TIERS):
        if below[tier] > 0:
            end_s = max(end_s, would_arrive_s(x.links, x.network, x.engine.number, tier, HBM, below[tier], now_s))
    return end_s - now_s


@njit(cache=True)
def _cost_s(x: Machine, job: Row, take: int, now_s: float) -> float:
    """What taking the first `take` blocks and computing all the rest costs, see `Placement`."""
    step_s = _step_s(x, known_tokens(job), take * x.engine.block_tokens)
    return _load_s(x, job, take, now_s) + (1.0 + x.stack.delay_weight * x.engine.running_count) * step_s


@njit(cache=True)
def _step_s(x: Machine, known: int, cached: int) -> float:
    """Time of one step in which the running rows decode and a row computes all its tokens behind `cached` ones."""
    batch = running(x.engine)
    decodes, context, squares, most = x.engine.running_count, ZERO, ZERO, ZERO
    for k in range(decodes):
        tokens = row_at(x.rows, batch[k]).computed_tokens + 1
        context += tokens
        squares += tokens * tokens
        most = max(most, tokens)
    pairs = (known - cached) * (cached + (known - cached) / 2)
    time_s, _ = look_up_step(x.table, known - cached, pairs, decodes, float(context), decodes + ONE, squares, most)
    return time_s
