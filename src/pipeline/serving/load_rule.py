"""Whether to load leading hits below HBM, or to compute them again: the rules of `Placement.load_or_recompute`."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.base import ALWAYS_LOAD, ALWAYS_RECOMPUTE, DEADLINE, SPLIT
from pipeline.placement.lower import tier_with
from pipeline.placement.state import DRAM, HBM, REMOTE, SSD, Ints
from pipeline.predictor.step_time import look_up_step
from pipeline.serving.blocks import known_tokens
from pipeline.serving.link import would_arrive_s
from pipeline.serving.state import Machine, Row, block_ids, int64, row_at, running

ZERO, ONE = int64(0), int64(1)
TIERS = REMOTE + 1


@njit(cache=True)
def taken(x: Machine, job: Row, run: int, now_s: float) -> tuple[int, int, int]:
    """Which of the `run` leading blocks, each found in some tier, the row is to take as hits; the rest it computes.

    Returns (front, back, end): the first `front` blocks, and those from `back` to `end`, none where these are equal.
    """
    rule = x.stack.load_rule
    if job.remote_tokens > 0 or (rule == ALWAYS_LOAD and x.stack.least_load_tokens == 0):
        return run, run, run
    leading = np.zeros(TIERS, np.int64)
    _lead(x, job, run, now_s, leading)
    in_hbm = int(leading[HBM])
    if rule == SPLIT:
        front, back = _split(x, job, in_hbm, run, now_s)
        if back < run and (run - back) * x.engine.block_tokens >= x.stack.least_load_tokens:
            return front, back, run
        return front, front, front
    front = _front(x, job, run, leading, now_s)
    if (front - in_hbm) * x.engine.block_tokens < x.stack.least_load_tokens:
        front = in_hbm
    return front, front, front


@njit(cache=True)
def _front(x: Machine, job: Row, run: int, leading: Ints, now_s: float) -> int:
    """How many leading blocks to take where what is taken comes before what is computed."""
    rule, in_hbm = x.stack.load_rule, int(leading[HBM])
    if in_hbm == run or rule == ALWAYS_RECOMPUTE:
        return in_hbm
    if rule == ALWAYS_LOAD:
        return run
    if rule == DEADLINE:
        return run if _load_s(x, job, ZERO, run, now_s) <= x.stack.deadline_s else in_hbm
    best, least_s = run, _cost_s(x, job, run, now_s)
    for tier in range(SSD, HBM - 1, -1):
        if leading[tier] < best:
            cost_s = _cost_s(x, job, leading[tier], now_s)
            if cost_s < least_s:
                best, least_s = int(leading[tier]), cost_s
    return best


@njit(cache=True)
def _split(x: Machine, job: Row, in_hbm: int, run: int, now_s: float) -> tuple[int, int]:
    """Where to cut the blocks below HBM: compute up to the cut, load from there on, unless one alone costs less.

    The load takes the less time the later the cut, the computing the more: both are ready soonest where they meet.
    Returns (front, back): take the first `front` blocks, and those from `back` on.
    """
    if in_hbm == run:
        return run, run
    low, high = in_hbm, run  # up to low the load is what takes longer
    while high - low > 1:
        middle = (low + high) // 2
        if _load_s(x, job, middle, run, now_s) >= _part_s(x, in_hbm, middle):
            low = middle
        else:
            high = middle
    front, back = run, run
    least_s = _cost_s(x, job, run, now_s)
    alone_s = _cost_s(x, job, in_hbm, now_s)
    if alone_s < least_s:
        front, back, least_s = in_hbm, run, alone_s
    weight = 1.0 + x.stack.delay_weight * x.engine.running_count
    rest_s = weight * _step_s(x, known_tokens(job), run * x.engine.block_tokens)
    for cut in (low, high):
        if in_hbm < cut < run:
            part_s = _part_s(x, in_hbm, cut)
            cost_s = max(_load_s(x, job, cut, run, now_s), part_s) + (weight - 1.0) * part_s + rest_s
            if cost_s < least_s:
                front, back, least_s = in_hbm, cut, cost_s
    return front, back


@njit(cache=True)
def _part_s(x: Machine, first: int, last: int) -> float:
    """Time of a step in which a row computes its blocks from `first` to `last`."""
    return _step_s(x, last * x.engine.block_tokens, first * x.engine.block_tokens)


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
def _load_s(x: Machine, job: Row, first: int, last: int, now_s: float) -> float:
    """Time until the blocks from `first` to `last` are there, behind what their links have to do already."""
    ids = block_ids(x)
    below = np.zeros(TIERS, np.int64)
    for k in range(job.chain_start + first, job.chain_start + last):
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
    return _load_s(x, job, ZERO, take, now_s) + (1.0 + x.stack.delay_weight * x.engine.running_count) * step_s


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
