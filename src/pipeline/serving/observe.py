"""What an engine looked like over time: its batch, a time line, and what a poll would have seen."""

from __future__ import annotations

import math

from numba import njit

from pipeline.serving.state import IN_BATCH, KV_BLOCKS, QUEUED, STATES, TOKENS, Engine, Floats, Ints, batch_s, bins


@njit(cache=True)
def observe(engine: Engine, time_s: float, kv_blocks: int) -> None:
    """Note that the engine is as it is now from `time_s` on; what it looked like until then is settled."""
    if time_s > engine.since_s:
        batch_s(engine)[engine.values[IN_BATCH], 0] += time_s - engine.since_s
        _settle(engine, time_s)
        if engine.poll_s > 0 and engine.next_poll * engine.poll_s < time_s:
            for k in range(STATES):
                engine.polled_values[k] = engine.values[k]
            engine.next_poll = _poll_from(time_s, engine.poll_s)
        engine.since_s = time_s
    engine.values[QUEUED] = engine.queued_count
    engine.values[IN_BATCH] = engine.running_count
    engine.values[KV_BLOCKS] = kv_blocks


@njit(cache=True)
def give_out(engine: Engine, tokens: int, last_tokens: int, end_s: float) -> None:
    """Note tokens put out by steps of which only the last, with `last_tokens`, may end in another interval, at `end_s`.

    That end is not observed yet: nobody knows what the engine will look like from there on.
    """
    if end_s < engine.bin_end_s:
        engine.emitted += tokens
        return
    bins(engine)[engine.bin_at, TOKENS] += engine.emitted + tokens - last_tokens
    engine.emitted = last_tokens


@njit(cache=True)
def _settle(engine: Engine, time_s: float) -> None:
    """Spread the time since the last boundary over the intervals; the tokens belong to its end."""
    table = bins(engine)
    at_s = engine.since_s
    while time_s >= engine.bin_end_s:
        _add(engine, table, engine.bin_end_s - at_s)
        at_s = engine.bin_end_s
        engine.bin_at += 1
        if engine.bin_at == table.shape[0]:
            _double(engine, table)
        engine.bin_end_s = (engine.bin_at + 1) * engine.bin_s
    _add(engine, table, time_s - at_s)
    table[engine.bin_at, TOKENS] += engine.emitted
    engine.emitted = 0


@njit(cache=True)
def _add(engine: Engine, table: Floats, elapsed_s: float) -> None:
    for value in range(STATES):
        table[engine.bin_at, value] += engine.values[value] * elapsed_s


@njit(cache=True)
def _double(engine: Engine, table: Floats) -> None:
    """Make each interval twice as long; the number of intervals is even."""
    half = table.shape[0] // 2
    for k in range(table.shape[0]):
        for value in range(STATES + 1):
            table[k, value] = table[2 * k, value] + table[2 * k + 1, value] if k < half else 0.0
    engine.bin_s *= 2
    engine.bin_at = half


@njit(cache=True)
def _poll_from(time_s: float, poll_s: float) -> int:
    """Number of the first poll that is not before `time_s`."""
    k = int(math.ceil(time_s / poll_s))
    while k > 0 and (k - 1) * poll_s >= time_s:
        k -= 1
    while k * poll_s < time_s:
        k += 1
    return k


@njit(cache=True)
def read_poll(engine: Engine, poll_time_s: float, out: Ints) -> None:
    """Copy what a poll at `poll_time_s` saw of the engine to `out` (3,).

    The engine must have run past that time, and the time be that of the last poll before the present.
    """
    for k in range(STATES):
        out[k] = engine.values[k] if engine.since_s <= poll_time_s else engine.polled_values[k]
