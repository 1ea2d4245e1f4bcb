"""KV blocks of a row: finding its prefix, taking and giving back blocks, charging what moved between tiers."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.base import ONBOARD, PREFETCH
from pipeline.placement.stack import account, commit, free_private, match, release, reserve, take_pending
from pipeline.placement.state import IN_HBM, Stack, pins, where
from pipeline.serving.link import CAUSE_COUNT, TIER_COUNT, free_from_s, send
from pipeline.serving.state import NONE, Machine, Row, block_ids, int64, loader


@njit(cache=True)
def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + block_tokens - 1) // block_tokens


@njit(cache=True)
def known_tokens(job: Row) -> int:
    """Tokens of the row that exist: its prompt, and its output so far; the last one's KV is never there."""
    return job.input_tokens + job.generated_tokens


@njit(cache=True)
def used_blocks(stack: Stack) -> int:
    """KV blocks of HBM that requests hold."""
    return stack.pinned_blocks + stack.private_blocks


@njit(cache=True)
def leading_hits(x: Machine, job: Row, now_s: float) -> tuple[int, int, int]:
    """Look the row's prefix up: the last token's block is never a hit, so that it is computed.

    Returns the leading blocks that some tier holds, how many of them are in use by others, and the blocks looked up.
    """
    start = job.chain_start
    looked_up = min(job.chain_blocks, (known_tokens(job) - 1) // x.engine.block_tokens)
    ids = block_ids(x)
    run = match(x.stack, x.tiers, ids, start, start + looked_up, now_s)
    if job.remote_tokens > 0:
        run = _leading_in_hbm(x, start, run)
    return run, pinned_among(x, job, int64(0), run), looked_up


@njit(cache=True)
def pinned_among(x: Machine, job: Row, first: int, last: int) -> int:
    """How many of the row's blocks from `first` to `last` are in use by others."""
    users, ids = pins(x.stack), block_ids(x)
    pinned = 0
    for k in range(job.chain_start + first, job.chain_start + last):
        pinned += users[ids[k]] > 0
    return pinned


@njit(cache=True)
def _leading_in_hbm(x: Machine, start: int, run: int) -> int:
    """How many of the first `run` blocks lie in HBM: what is below comes from the instance that holds them all."""
    tiers_of, ids = where(x.stack), block_ids(x)
    kept = 0
    while kept < run and tiers_of[ids[start + kept]] & IN_HBM:
        kept += 1
    return kept


@njit(cache=True)
def extend(x: Machine, job: Row, computed_tokens: int, tokens: int, time_s: float) -> bool:
    """Give the row, which has KV of `computed_tokens`, blocks for `tokens` more; False, and nothing, if none are left.

    Blocks that these tokens fill are cached from now on: whoever is scheduled later may use them.
    """
    held = job.cached_blocks + job.private_blocks
    missing = blocks_for(computed_tokens + tokens, x.engine.block_tokens) - held
    if missing > 0:
        if not reserve(x.stack, x.tiers, missing, time_s):
            return False
        job.private_blocks += missing
    cache_full(x, job, computed_tokens + tokens, time_s)
    return True


@njit(cache=True)
def cache_full(x: Machine, job: Row, tokens: int, time_s: float) -> None:
    """Turn the row's private blocks that `tokens` tokens fill, and whose content the trace knows, into cached ones."""
    full = min(tokens // x.engine.block_tokens, job.chain_blocks)
    while job.cached_blocks < full:
        block = block_ids(x)[job.chain_start + job.cached_blocks]
        job.cached_blocks += 1
        commit(x.stack, x.tiers, block, job.cached_blocks * x.engine.block_tokens > job.input_tokens, time_s)
        job.private_blocks -= 1


@njit(cache=True)
def give_back(x: Machine, job: Row, time_s: float) -> None:
    """Let go of all blocks of the row; the cached ones stay until they are evicted, the end of the chain first."""
    account(x.tiers, time_s)
    free_private(x.stack, x.tiers, job.private_blocks)
    ahead = job.chain_start + job.ahead_start
    release(x.stack, x.tiers, block_ids(x), ahead, ahead + job.ahead_blocks, time_s)
    job.ahead_blocks = 0
    release(x.stack, x.tiers, block_ids(x), job.chain_start, job.chain_start + job.cached_blocks, time_s)
    job.cached_blocks = 0
    job.private_blocks = 0


@njit(cache=True)
def pending_loader(x: Machine, row: int, start: int, run: int) -> int:
    """Another row whose load, still under way, brings one of `run` blocks of a row; -1 if there is none."""
    loading, ids = loader(x.engine), block_ids(x)
    if loading.size > 0:
        for k in range(start, start + run):
            if loading[ids[k]] != NONE and loading[ids[k]] != row:
                return int(loading[ids[k]])
    return NONE


@njit(cache=True)
def charge_moves(x: Machine, time_s: float) -> None:
    """Charge what was written since the last call to the links; what comes up is charged at once."""
    if x.stack.pending_count == 0:
        return
    moves = np.empty((TIER_COUNT, TIER_COUNT, CAUSE_COUNT), np.int64)
    take_pending(x.stack, moves)
    i = x.engine.number
    for source in range(TIER_COUNT):
        for target in range(TIER_COUNT):
            for cause in range(CAUSE_COUNT):
                if moves[source, target, cause] > 0 and cause not in (ONBOARD, PREFETCH):
                    send(x.links, x.network, i, source, target, cause, moves[source, target, cause], time_s)
                    x.stack.free_s[source, target] = free_from_s(x.links, x.network, i, source, target)
