"""The compiled world: the calls that a simulation makes into its engines.

A world is an array of addresses, (instances, FIELDS): handing over the arrays themselves would cost their unpacking at
every call, tens of microseconds. Whoever makes it keeps what it points to alive.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.np.numpy_support import carray

from pipeline.eviction.base import PolicyFunctions
from pipeline.placement.base import ONBOARD
from pipeline.placement.stack import DRAM, HBM, SSD, StackPolicies, account
from pipeline.records import ints_at
from pipeline.serving import agenda
from pipeline.serving.agenda import ENGINE, clock_s, fill, second_s
from pipeline.serving.blocks import charge_moves, give_back, used_blocks
from pipeline.serving.coast import can_coast, coast, end_run
from pipeline.serving.link import occupy, occupy_handoff
from pipeline.serving.observe import observe, read_poll
from pipeline.serving.packed import engine_at, links_at, log_at, policy_at, stack_at, table_at
from pipeline.serving.queues import enqueue
from pipeline.serving.schedule import REMOTE_LOAD, arrived
from pipeline.serving.state import DONE, WAITING, Ints, Machine, log_has_room, row_at, written
from pipeline.serving.step import step

World = Ints
STACK, TABLE, ROWS, IDS, ID_COUNT, LINKS, LOG, AGENDA = 1, *range(11, 18)
HBM_POLICY, INSERT = 2, 6
"""Columns: addresses, and a length. From HBM_POLICY on one a tier; from INSERT on a policy's functions."""


@njit(inline="always")
def _machine(world: World, i: int) -> Machine:
    at = world[i]
    p, f = HBM_POLICY, INSERT
    states = (policy_at(at[p]), policy_at(at[p + 1]), policy_at(at[p + 2]), policy_at(at[p + 3]))
    policies = StackPolicies(states, PolicyFunctions(at[f], at[f + 1], at[f + 2], at[f + 3], at[f + 4]))
    engine, stack, links, log = engine_at(at[ENGINE]), stack_at(at[STACK]), links_at(at[LINKS]), log_at(at[LOG])
    return Machine(engine, stack, policies, at[ROWS], at[IDS], at[ID_COUNT], links, log, table_at(at[TABLE]))


@njit(cache=True)
def _run(world: World, i: int, limit_s: float) -> float:
    """Do the steps of instance i that start before the limit, up to one of which others must hear; return when."""
    x = _machine(world, i)
    heard_s = np.inf
    while x.engine.clock_s < limit_s and log_has_room(x.log):
        if can_coast(x):
            if coast(x, limit_s):
                break
            if x.engine.clock_s >= limit_s:
                break
        elif x.engine.coasting:
            end_run(x)
        heard_s = min(heard_s, step(x))
        limit_s = min(limit_s, heard_s)
    return heard_s


@njit(cache=True)
def advance(world: World, coupled: bool, limit_s: float) -> tuple[float, int]:
    """Do every step that starts before the limit; return the start of the first that is left, and entries in the log.

    Stops early at what others must hear of: it stands in the log, and no step that it could reach has been done. Where
    instances are coupled, all stop there; else only the one concerned, and one of which nothing will be heard before
    the limit is left where it is: with many instances, looking in at each at every arrival would cost more than its
    steps. It catches up when someone looks at it.
    """
    log = log_at(world[0, LOG])
    if not coupled:
        first_s = np.inf
        for i in range(world.shape[0]):
            engine = engine_at(world[i, ENGINE])
            if engine.clock_s < limit_s:
                if engine.coasting and limit_s <= engine.quiet_s:
                    first_s = min(first_s, limit_s)
                    continue
                _run(world, i, limit_s)
            first_s = min(first_s, engine.clock_s)
        return first_s, written(log)
    heap = carray(ints_at(world[0, AGENDA]), (world.shape[0],))
    fill(world, heap)
    while True:
        first_s = clock_s(world, heap[0])
        if not (first_s < limit_s and log_has_room(log)):
            return first_s, written(log)
        # One step at least where two start together, the lower number first.
        next_s = max(second_s(world, heap), np.nextafter(first_s, np.inf))
        limit_s = min(limit_s, _run(world, heap[0], min(limit_s, next_s)))
        agenda.settle(world, heap, 0)


@njit(cache=True)
def _catch_up(world: World, i: int, now_s: float) -> None:
    """Do the steps of instance i that `advance` has left."""
    if engine_at(world[i, ENGINE]).clock_s < now_s:
        _run(world, i, now_s)


@njit(cache=True)
def _wake(x: Machine, now_s: float) -> None:
    """Let an engine that had nothing to do look again; one in the middle of a step looks at its end."""
    x.engine.quiet_s = 0.0
    if x.engine.clock_s == np.inf:
        x.engine.clock_s = now_s


@njit(cache=True)
def submit(world: World, i: int, row: int, now_s: float) -> None:
    """Queue a row at instance i."""
    _catch_up(world, i, now_s)
    x = _machine(world, i)
    row_at(x.rows, row).arrival_s = now_s
    enqueue(x.engine, x.rows, WAITING, row)
    if x.engine.ranks:  # it may be the first now, and fit where that one did not
        x.engine.blocked = 0
    _wake(x, now_s)
    row_at(x.rows, row).taken_s = x.engine.clock_s


@njit(cache=True)
def loaded(world: World, i: int, row: int, now_s: float) -> None:
    """Tell instance i that what the row was loading has arrived."""
    _catch_up(world, i, now_s)
    x = _machine(world, i)
    arrived(x, row, now_s)
    _wake(x, now_s)


@njit(cache=True)
def let_go(world: World, i: int, row: int, now_s: float) -> None:
    """Tell instance i that the blocks of a row that it kept are no longer needed."""
    x = _machine(world, i)
    give_back(x, row_at(x.rows, row), now_s)
    row_at(x.rows, row).status = DONE
    x.engine.blocked = 0
    _wake(x, now_s)


@njit(cache=True)
def begin_decode(world: World, i: int, row: int, now_s: float) -> None:
    """Queue a row at instance i whose prompt another instance has computed, first token and all."""
    job = row_at(world[i, ROWS], row)
    job.first_token_s = job.last_token_s = now_s
    job.generated_tokens = 1
    submit(world, i, row, now_s)


@njit(cache=True)
def load(world: World, i: int, source_instance: int, row: int, now_s: float) -> tuple[float, float]:
    """Start moving what a row at instance i waits for, from lower tiers and from another instance.

    Returns when all has arrived, and when the KV has left the other instance, NaN if none came from there.
    """
    x = _machine(world, i)
    job = row_at(x.rows, row)
    arrived_s, left_s = now_s, np.nan
    for tier in (DRAM, SSD):
        if job.load_blocks[tier] > 0:
            x.engine.announced_blocks[tier] -= job.load_blocks[tier]
            arrived_s = max(arrived_s, occupy(x.links, i, tier, HBM, ONBOARD, job.load_blocks[tier], now_s))
    if job.remote_tokens > 0:
        left_s = now_s
        if job.load_blocks[REMOTE_LOAD] > 0:
            left_s = occupy_handoff(x.links, source_instance, i, job.load_blocks[REMOTE_LOAD], now_s)
        arrived_s = max(arrived_s, left_s)
    return arrived_s, left_s


@njit(cache=True)
def poll(world: World, first: int, poll_time_s: float, now_s: float, out: Ints) -> None:
    """Copy what the last poll before now saw of the instances from `first` on to `out` (instances, 3)."""
    for k in range(out.shape[0]):
        _catch_up(world, first + k, now_s)
        read_poll(engine_at(world[first + k, ENGINE]), poll_time_s, out[k])


@njit(cache=True)
def settle(world: World, first: int, count: int, now_s: float) -> None:
    """Book to their rows the tokens that `count` instances from `first` on have put out by now in runs of decoding."""
    for i in range(first, first + count):
        _catch_up(world, i, now_s)
        x = _machine(world, i)
        if x.engine.coasting:
            end_run(x)


@njit(cache=True)
def close(world: World, end_s: float) -> None:
    """Settle all accounts up to the end of the simulation."""
    for i in range(world.shape[0]):
        x = _machine(world, i)
        charge_moves(x, end_s)
        account(x.stack, end_s)
        observe(x.engine, end_s, used_blocks(x.stack))
