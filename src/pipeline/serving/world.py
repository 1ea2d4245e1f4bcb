"""The compiled world: the calls that a simulation makes into its engines.

A world is an array of addresses, (instances, FIELDS): handing over the arrays themselves would cost their unpacking at
every call, tens of microseconds. Whoever makes it keeps what it points to alive.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.np.numpy_support import carray

from pipeline.eviction.base import PolicyFunctions
from pipeline.placement.stack import StackPolicies, account
from pipeline.serving.blocks import charge_moves, give_back, used_blocks
from pipeline.serving.coast import can_coast, coast
from pipeline.serving.link import occupy, occupy_handoff
from pipeline.serving.observe import observe, read_poll
from pipeline.serving.packed import (
    engine_at,
    entries_at,
    ints_at,
    links_at,
    policy_at,
    rows_at,
    stack_at,
    table_at,
    unpack,
)
from pipeline.serving.queues import push_back
from pipeline.serving.schedule import arrived
from pipeline.serving.state import DONE, WAITING, Ints, Log, Machine, log_has_room
from pipeline.serving.step import step

World = Ints
ENGINE, STACK, TABLE, ROWS, ROW_COUNT, IDS, ID_COUNT, LINKS, ENTRIES, ENTRY_COUNT, WRITTEN = 0, 1, *range(11, 20)
HBM_POLICY, INSERT = 2, 6
"""Columns: addresses, and the length of arrays. From HBM_POLICY on one a tier; from INSERT on a policy's functions."""


@njit(inline="always")
def _log(world: World) -> Log:
    at = world[0]
    entries = carray(entries_at(at[ENTRIES]), (at[ENTRY_COUNT],))
    return Log(entries, carray(ints_at(at[WRITTEN]), (1,)), at[ROW_COUNT])


@njit(inline="always")
def _machine(world: World, i: int) -> Machine:
    at = world[i]
    p, f = HBM_POLICY, INSERT
    states = (policy_at(at[p]), policy_at(at[p + 1]), policy_at(at[p + 2]), policy_at(at[p + 3]))
    policies = StackPolicies(states, PolicyFunctions(at[f], at[f + 1], at[f + 2], at[f + 3], at[f + 4]))
    rows = carray(rows_at(at[ROWS]), (at[ROW_COUNT],))
    ids = carray(ints_at(at[IDS]), (at[ID_COUNT],))
    return Machine(engine_at(at[ENGINE]), stack_at(at[STACK]), policies, rows, ids, links_at(at[LINKS]), _log(world))


@njit(cache=True)
def _run(world: World, i: int, limit_s: float) -> float:
    """Do the steps of instance i that start before the limit, up to one of which others must hear; return when."""
    x = _machine(world, i)
    table = unpack(table_at(world[i, TABLE]))
    heard_s = np.inf
    while x.engine.clock_s < limit_s and log_has_room(x.log):
        if can_coast(x):
            coast(x, table, limit_s)
            if x.engine.clock_s >= limit_s:
                break
        heard_s = min(heard_s, step(x, table))
        limit_s = min(limit_s, heard_s)
    return heard_s


@njit(cache=True)
def advance(world: World, coupled: bool, limit_s: float) -> tuple[float, int]:
    """Do every step that starts before the limit; return the start of the first that is left, and entries in the log.

    Stops early at what others must hear of: it stands in the log, and no step that it could reach has been done. Where
    instances are coupled, all stop there; else only the one concerned.
    """
    log = _log(world)
    if not coupled:
        first_s = np.inf
        for i in range(world.shape[0]):
            engine = engine_at(world[i, ENGINE])
            if engine.clock_s < limit_s:
                _run(world, i, limit_s)
            first_s = min(first_s, engine.clock_s)
        return first_s, log.written[0]
    while True:
        i, first_s, second_s = _earliest(world)
        if not (first_s < limit_s and log_has_room(log)):
            return first_s, log.written[0]
        # One step at least where two start together, the lower number first.
        limit_s = min(limit_s, _run(world, i, min(limit_s, max(second_s, np.nextafter(first_s, np.inf)))))


@njit(cache=True)
def _earliest(world: World) -> tuple[int, float, float]:
    """Return the instance whose next step starts first, when that is, and when the next other one starts."""
    at, first_s, second_s = 0, np.inf, np.inf
    for i in range(world.shape[0]):
        clock_s = engine_at(world[i, ENGINE]).clock_s
        if clock_s < first_s:
            at, first_s, second_s = i, clock_s, first_s
        else:
            second_s = min(second_s, clock_s)
    return at, first_s, second_s


@njit(cache=True)
def _wake(x: Machine, now_s: float) -> None:
    """Let an engine that had nothing to do look again; one in the middle of a step looks at its end."""
    if x.engine.clock_s == np.inf:
        x.engine.clock_s = now_s


@njit(cache=True)
def submit(world: World, i: int, row: int, now_s: float) -> None:
    """Queue a row at instance i."""
    x = _machine(world, i)
    x.rows[row].arrival_s = now_s
    push_back(x.engine, x.rows, WAITING, row)
    _wake(x, now_s)
    x.rows[row].taken_s = x.engine.clock_s


@njit(cache=True)
def loaded(world: World, i: int, row: int, now_s: float) -> None:
    """Tell instance i that what the row was loading has arrived."""
    x = _machine(world, i)
    arrived(x, row, now_s)
    _wake(x, now_s)


@njit(cache=True)
def let_go(world: World, i: int, row: int, now_s: float) -> None:
    """Tell instance i that the blocks of a row that it kept are no longer needed."""
    x = _machine(world, i)
    give_back(x, x.rows[row], now_s)
    x.rows[row].status = DONE
    x.engine.blocked = 0
    _wake(x, now_s)


@njit(cache=True)
def move(world: World, i: int, source: int, target: int, cause: int, block_count: int, now_s: float) -> float:
    """Move blocks of instance i between two tiers over its links; return when they have arrived."""
    return occupy(links_at(world[i, LINKS]), i, source, target, cause, block_count, now_s)


@njit(cache=True)
def hand_off(world: World, source_instance: int, i: int, block_count: int, now_s: float) -> float:
    """Send blocks of KV to instance i from another one; return when they have arrived."""
    return occupy_handoff(links_at(world[i, LINKS]), source_instance, i, block_count, now_s)


@njit(cache=True)
def poll(world: World, first: int, poll_time_s: float, out: Ints) -> None:
    """Copy what a poll saw of the instances from `first` on to `out` (instances, 3)."""
    for k in range(out.shape[0]):
        read_poll(engine_at(world[first + k, ENGINE]), poll_time_s, out[k])


@njit(cache=True)
def close(world: World, end_s: float) -> None:
    """Settle all accounts up to the end of the simulation."""
    for i in range(world.shape[0]):
        x = _machine(world, i)
        charge_moves(x, end_s)
        account(x.stack, end_s)
        observe(x.engine, end_s, used_blocks(x.stack))
