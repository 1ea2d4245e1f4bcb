"""What transfers between tiers do to an engine: loads that arrive, writes that it waits for, steps that they slow."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.lower import write_listed
from pipeline.placement.state import DRAM, HBM, REMOTE
from pipeline.serving.link import first_stream, free_from_s, pair_of, send, waiting_rows
from pipeline.serving.network import SLACK, arrival_s, bytes_per_s, has_arrived, settle, wait_for
from pipeline.serving.state import NONE, Engine, Machine, Row, int64, row_at
from pipeline.serving.wiring import HBM_STREAMS, STREAMS


@njit(cache=True)
def start_load(x: Machine, job: Row, row: int, tier: int, block_count: int, cause: int, now_s: float) -> None:
    """Send blocks that the row waits for up from a tier below HBM."""
    i = x.engine.number
    job.load_end[tier] = send(x.links, x.network, i, tier, HBM, cause, block_count, now_s)
    job.next_load[tier] = NONE
    job.loads_left += 1
    pair = pair_of(x.links, tier, HBM)
    queue = waiting_rows(x.links)[i * STREAMS + pair]
    if queue[0] == NONE:
        queue[0] = row
        wait_for(x.network, first_stream(x.links, i) + pair, job.load_end[tier])
    else:
        row_at(x.rows, queue[1]).next_load[tier] = row
    queue[1] = row


@njit(cache=True)
def due_s(x: Machine, job: Row) -> float:
    """When all that the row is loading will have arrived, if no speed changes."""
    due = 0.0
    for tier in range(DRAM, REMOTE + 1):
        stream = first_stream(x.links, x.engine.number) + pair_of(x.links, tier, HBM)
        if job.load_end[tier] > 0.0:
            due = max(due, arrival_s(x.network, stream, job.load_end[tier]))
    return due


@njit(cache=True)
def next_arrived(x: Machine, now_s: float) -> int:
    """Take note of a load that has arrived by now; return a row of which it was the last one, -1 if there is none."""
    i = x.engine.number
    settle(x.network, now_s)
    for tier in range(DRAM, REMOTE + 1):
        pair = pair_of(x.links, tier, HBM)
        stream = first_stream(x.links, i) + pair
        queue = waiting_rows(x.links)[i * STREAMS + pair]
        while has_arrived(x.network, stream, now_s):
            row = int64(queue[0])
            job = row_at(x.rows, row)
            queue[0] = job.next_load[tier]
            wait_for(x.network, stream, np.inf if queue[0] == NONE else row_at(x.rows, queue[0]).load_end[tier])
            job.load_end[tier] = 0.0
            job.loads_left -= 1
            if job.loads_left == 0:
                return int(row)
    return NONE


@njit(cache=True)
def write_computed(x: Machine, now_s: float) -> None:
    """Write what is listed to be written, once a step: what a step that starts now lists is computed at its end."""
    if x.engine.written_s < now_s:
        x.engine.written_s = now_s
        write_listed(x.stack, x.tiers, now_s)


@njit(cache=True)
def may_start_s(x: Machine, now_s: float) -> float:
    """When the engine may start its next step at the soonest: once its writes are not too far behind.

    That may have to be asked again then.
    """
    below = x.stack.below[HBM]
    if not x.stack.waits or below == NONE or x.network.active_count == 0:
        return now_s
    settle(x.network, now_s)
    until_s = free_from_s(x.links, x.network, x.engine.number, HBM, below) - x.stack.write_buffer_s
    return min(until_s, x.network.change_s) if until_s > now_s + SLACK else now_s


@njit(cache=True)
def dma_share(x: Machine, now_s: float) -> float:
    """Share of the instance's HBM bandwidth that its transfers take."""
    if x.engine.hbm_bytes_per_s == 0.0 or x.network.active_count == 0:
        return 0.0
    settle(x.network, now_s)
    return bytes_per_s(x.network, first_stream(x.links, x.engine.number), HBM_STREAMS) / x.engine.hbm_bytes_per_s


@njit(cache=True)
def streamed_s(engine: Engine, step_s: float, decode_tokens: int, chunk_tokens: int, new_tokens: int) -> float:
    """How much longer a step takes for the KV that it reads from DRAM and writes there, see `Streaming`; counts it.

    decode_tokens, chunk_tokens: that precede those decoded, and the chunks of prompts; new_tokens: computed.
    """
    read_tokens = engine.read_ratio * decode_tokens + engine.dram_ratio * chunk_tokens
    written_tokens = engine.dram_ratio * new_tokens
    engine.streamed_tokens[0] += read_tokens
    engine.streamed_tokens[1] += written_tokens
    read_s, write_s = read_tokens * engine.read_s, written_tokens * engine.write_s
    return max(read_s - step_s, write_s - step_s, 0.0) if engine.overlaps else read_s + write_s


@njit(cache=True)
def slowed_s(engine: Engine, share: float, step_s: float, context_tokens: float) -> float:
    """By how much transfers slow a step down: the part of it that reads HBM, times the share that they take.

    That part is the weights and the KV of decoding requests over the bandwidth, or the whole step.
    """
    return share * min(step_s, engine.weights_read_s + context_tokens * engine.token_read_s)
