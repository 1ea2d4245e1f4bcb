"""The compiled world: the calls that a simulation makes into its engines.

A world is an array of addresses, (instances, FIELDS): handing over the arrays themselves would cost their unpacking at
every call, tens of microseconds. Whoever makes it keeps what it points to alive.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.np.numpy_support import carray

from pipeline.by_address import compiled_address, raising_caller
from pipeline.eviction.base import PolicyFunctions
from pipeline.placement.lower import write_listed
from pipeline.placement.stack import account
from pipeline.placement.state import StackTiers
from pipeline.records import ints_at
from pipeline.serving import agenda
from pipeline.serving.agenda import ENGINE, OWN_NETWORK, clock_s, fill, second_s
from pipeline.serving.blocks import charge_moves, give_back, used_blocks
from pipeline.serving.coast import can_coast, coast, end_run
from pipeline.serving.link import occupy_handoff
from pipeline.serving.observe import observe, read_poll
from pipeline.serving.packed import engine_at, links_at, log_at, network_at, policy_at, stack_at, table_at, tier_at
from pipeline.serving.prefix import arrived, fetch
from pipeline.serving.queues import enqueue
from pipeline.serving.state import DONE, NONE, WAITING, Ints, Machine, log_has_room, row_at, written
from pipeline.serving.step import step
from pipeline.serving.transfers import may_start_s, next_arrived

World = Ints
STACK, NETWORK, TIER, POLICY, FUNCTIONS = 2, 3, 4, 8, 12
TABLE, ROWS, IDS, ID_COUNT, LINKS, LOG, AGENDA, RUN = range(17, 25)
"""Columns after those of the agenda: addresses, and a length. From TIER and POLICY on one a tier; FUNCTIONS: of the
policy; RUN: of `_run`, which is called by address: compiled into each of its callers it would take as long again."""
FIELDS = RUN + 1
ON_RUN = types.float64(types.int64, types.int64, types.int64, types.float64)
_call_run = raising_caller(ON_RUN)


def run_address() -> int:
    """Where `_run` is, compiled."""
    return compiled_address(_run, ON_RUN)


@njit(inline="always")
def _machine(world: World, i: int) -> Machine:
    at = world[i]
    t, p, f = TIER, POLICY, FUNCTIONS
    records = (tier_at(at[t]), tier_at(at[t + 1]), tier_at(at[t + 2]), tier_at(at[t + 3]))
    states = (policy_at(at[p]), policy_at(at[p + 1]), policy_at(at[p + 2]), policy_at(at[p + 3]))
    tiers = StackTiers(records, states, PolicyFunctions(at[f], at[f + 1], at[f + 2], at[f + 3], at[f + 4]))
    engine, stack, links, log = engine_at(at[ENGINE]), stack_at(at[STACK]), links_at(at[LINKS]), log_at(at[LOG])
    network, table = network_at(at[NETWORK]), table_at(at[TABLE])
    return Machine(engine, stack, tiers, at[ROWS], at[IDS], at[ID_COUNT], links, network, log, table)


@njit(cache=True)
def _run(world_address: int, instance_count: int, i: int, limit_s: float) -> float:
    """Do what happens at instance i before the limit, up to a step of which others must hear; return when.

    In a network that is shared, loads that arrive are not its business, and it goes no further than to the next one.
    """
    world = carray(ints_at(world_address), (instance_count, FIELDS))
    x = _machine(world, i)
    heard_s = np.inf
    while log_has_room(x.log):
        look_s = x.network.look_s
        if world[i, OWN_NETWORK] == 0:
            limit_s = min(limit_s, look_s)
        elif look_s <= x.engine.clock_s:
            if look_s >= limit_s:
                break
            _take_arrivals(x, look_s)
            continue
        if not x.engine.clock_s < limit_s:
            break
        start_s = may_start_s(x, x.engine.clock_s)
        if start_s > x.engine.clock_s:
            if x.engine.coasting:
                end_run(x)
            observe(x.engine, x.engine.clock_s, used_blocks(x.stack))
            x.engine.clock_s = start_s
            continue
        if can_coast(x):
            if coast(x, min(limit_s, look_s)):
                continue
            if not x.engine.clock_s < min(limit_s, look_s) or may_start_s(x, x.engine.clock_s) > x.engine.clock_s:
                continue
        elif x.engine.coasting:
            end_run(x)
        heard_s = min(heard_s, step(x))
        limit_s = min(limit_s, heard_s)
    return heard_s


@njit(cache=True)
def _run_to(world: World, i: int, limit_s: float) -> float:
    return float(_call_run(world[i, RUN], (world.ctypes.data, world.shape[0], i, limit_s)))


@njit(cache=True)
def _take_arrivals(x: Machine, now_s: float) -> None:
    """Let the rows of an instance go on whose loads have arrived."""
    row = next_arrived(x, now_s)
    while row != NONE:
        arrived(x, row, now_s)
        _wake(x, now_s)
        row = next_arrived(x, now_s)


@njit(cache=True)
def advance(world: World, coupled: bool, limit_s: float) -> tuple[float, int]:
    """Do all that happens before the limit; return when the first thing happens that is left, and entries in the log.

    Stops early at what others must hear of: it stands in the log, and no step that it could reach has been done. Where
    instances are coupled, all stop there; else only the one concerned, and one of which nothing will be heard before
    the limit is left where it is: with many instances, looking in at each at every arrival would cost more than its
    steps. It catches up when someone looks at it.
    """
    log = log_at(world[0, LOG])
    if not coupled:
        first_s = np.inf
        for i in range(world.shape[0]):
            next_s = clock_s(world, i)
            if next_s < limit_s:
                engine = engine_at(world[i, ENGINE])
                if engine.coasting and limit_s <= engine.quiet_s:
                    first_s = min(first_s, limit_s)
                    continue
                _run_to(world, i, limit_s)
                next_s = clock_s(world, i)
            first_s = min(first_s, next_s)
        return first_s, written(log)
    heap = carray(ints_at(world[0, AGENDA]), (world.shape[0],))
    fill(world, heap)
    network, is_shared = network_at(world[0, NETWORK]), world[0, OWN_NETWORK] == 0
    while True:
        first_s = clock_s(world, heap[0])
        look_s = network.look_s if is_shared else np.inf
        if not (min(first_s, look_s) < limit_s and log_has_room(log)):
            return min(first_s, look_s), written(log)
        if look_s <= first_s:
            for i in range(world.shape[0]):
                _take_arrivals(_machine(world, i), look_s)
            fill(world, heap)
            continue
        # One step at least where two start together, the lower number first.
        next_s = max(second_s(world, heap), np.nextafter(first_s, np.inf))
        limit_s = min(limit_s, _run_to(world, heap[0], min(limit_s, next_s)))
        agenda.settle(world, heap, 0)


@njit(cache=True)
def _catch_up(world: World, i: int, now_s: float) -> None:
    """Do the steps of instance i that `advance` has left."""
    if clock_s(world, i) < now_s:
        _run_to(world, i, now_s)


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
def handed_off(world: World, i: int, row: int, now_s: float) -> None:
    """Tell instance i that the row's KV has come from another instance."""
    x = _machine(world, i)
    job = row_at(x.rows, row)
    job.loads_left -= 1
    if job.loads_left == 0:
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
def hand_off(world: World, i: int, source_instance: int, row: int, now_s: float) -> float:
    """Start moving a row's KV from another instance to instance i; return when it is there."""
    x = _machine(world, i)
    job = row_at(x.rows, row)
    if job.handoff_blocks == 0:
        return now_s
    return occupy_handoff(x.links, source_instance, i, job.handoff_blocks, now_s)


@njit(cache=True)
def fetch_ahead(world: World, i: int, row: int, now_s: float) -> None:
    """Bring up what the chain of a row that is no request has below HBM at instance i, if there is room for it.

    Not where a step is about to start: whoever waits for it loads for itself.
    """
    _catch_up(world, i, now_s)
    x = _machine(world, i)
    if x.engine.clock_s > now_s:
        fetch(x, row, now_s)
        x.engine.quiet_s = 0.0


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
        write_listed(x.stack, x.tiers, end_s)
        charge_moves(x, end_s)
        account(x.tiers, end_s)
        observe(x.engine, end_s, used_blocks(x.stack))
