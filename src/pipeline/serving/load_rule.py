"""Whether to load leading hits below HBM, or to compute them again: the rules of `Placement.load_or_recompute`."""

from __future__ import annotations

from numba import njit

from pipeline.placement.base import ALWAYS_LOAD, ALWAYS_RECOMPUTE, DEADLINE
from pipeline.placement.stack import DRAM, HBM, SSD
from pipeline.placement.state import IN_HBM, where
from pipeline.predictor.step_time import look_up_step
from pipeline.serving.blocks import known_tokens
from pipeline.serving.link import arrival_s
from pipeline.serving.state import Machine, Row, block_ids, int64, row_at, running

IN_DRAM = 1 << DRAM
ZERO, ONE = int64(0), int64(1)


@njit(cache=True)
def taken(x: Machine, job: Row, run: int, now_s: float) -> int:
    """How many of the `run` leading blocks, each in some tier, the row is to take as hits; the rest it computes."""
    rule = x.stack.load_rule
    if rule == ALWAYS_LOAD or job.remote_tokens > 0:
        return run
    in_hbm, above_ssd = _leading(x, job, run)
    if in_hbm == run or rule == ALWAYS_RECOMPUTE:
        return in_hbm
    if rule == DEADLINE:
        return run if _load_s(x, job, run, now_s) <= x.stack.deadline_s else in_hbm
    best, least_s = run, _cost_s(x, job, run, now_s)
    for candidate in (above_ssd, in_hbm):
        cost_s = _cost_s(x, job, candidate, now_s)
        if cost_s < least_s:
            best, least_s = candidate, cost_s
    return best


@njit(cache=True)
def _leading(x: Machine, job: Row, run: int) -> tuple[int, int]:
    """Leading blocks in HBM, and in HBM or DRAM."""
    tiers_of, ids = where(x.stack), block_ids(x)
    in_hbm = ZERO
    while in_hbm < run and tiers_of[ids[job.chain_start + in_hbm]] & IN_HBM:
        in_hbm += 1
    above_ssd = in_hbm
    while above_ssd < run and tiers_of[ids[job.chain_start + above_ssd]] & (IN_HBM | IN_DRAM):
        above_ssd += 1
    return in_hbm, above_ssd


@njit(cache=True)
def _load_s(x: Machine, job: Row, take: int, now_s: float) -> float:
    """Time until the blocks below HBM among the first `take` are there, behind what their links have to do already."""
    tiers_of, ids = where(x.stack), block_ids(x)
    dram, ssd = ZERO, ZERO
    for k in range(job.chain_start, job.chain_start + take):
        if tiers_of[ids[k]] & IN_HBM == 0:
            if tiers_of[ids[k]] & IN_DRAM:
                dram += 1
            else:
                ssd += 1
    if dram + ssd == 0:
        return 0.0
    end_s, before = now_s, x.engine.announced_blocks
    if dram + before[DRAM] > 0:
        end_s = arrival_s(x.links, x.engine.number, DRAM, HBM, dram + before[DRAM], now_s)
    if ssd + before[SSD] > 0:  # last over the same link
        end_s = arrival_s(x.links, x.engine.number, SSD, HBM, ssd + before[SSD], end_s)
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
