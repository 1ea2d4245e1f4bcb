"""The compiled world: all engines behind one handle, and the calls that a simulation makes into it.

Handing over the arrays themselves would cost their unpacking at every call, tens of microseconds; the handle costs one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, typeof, types
from numba.experimental import structref
from numba.extending import intrinsic

from pipeline.eviction.base import STATE_TYPE, PolicyFunctions
from pipeline.placement.stack import StackPolicies, account
from pipeline.placement.state import STACK_TYPE
from pipeline.predictor.step_table import StepTable
from pipeline.serving.blocks import charge_moves, give_back, used_blocks
from pipeline.serving.coast import can_coast, coast
from pipeline.serving.link import LINKS_TYPE, occupy, occupy_handoff
from pipeline.serving.observe import observe, read_poll
from pipeline.serving.queues import push_back
from pipeline.serving.schedule import arrived
from pipeline.serving.state import DONE, ENGINE_TYPE, LOG_TYPE, WAITING, Floats, Ints, Machine, Rows, log_entry, log_has_room
from pipeline.serving.step import step

ADDRESSES = 11
"""Per instance: its engine, its stack, the state of each tier's policy, and the policy's five operations."""


def _at(kind: Any) -> Any:
    """Make what finds, in compiled code, the record of a type at an address; whoever gives it keeps the record."""

    def type_record(_typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(kind))

        return kind(address), generate

    return intrinsic(type_record)


_engine_at = _at(ENGINE_TYPE)
_stack_at = _at(STACK_TYPE)
_policy_at = _at(STATE_TYPE)
_links_at = _at(LINKS_TYPE)
_log_at = _at(LOG_TYPE)


@structref.register
class _WorldType(types.StructRef):  # type: ignore[misc]
    """Type of the handle."""

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class World(structref.StructRefProxy):  # type: ignore[misc]
    """Handle of all engines.

    addresses: (instances, ADDRESSES). shared: (2,) addresses of the links and the log. rows, ids, table: as Machine.
    coupled: instances hear of one another's events, so no one may run ahead. coasts: runs of mere decoding in one go.
    """

    def __new__(
        cls, addresses: Ints, shared: Ints, rows: Rows, ids: Ints, table: StepTable, coupled: bool, coasts: bool
    ) -> World:
        """Bind the parts; the caller keeps the records behind the addresses alive."""
        return _make_world(addresses, shared, rows, ids, table, coupled, coasts)


structref.define_proxy(World, _WorldType, ["addresses", "shared", "rows", "ids", "table", "coupled", "coasts"])


@njit(cache=True)
def _make_world(
    addresses: Ints, shared: Ints, rows: Rows, ids: Ints, table: StepTable, coupled: bool, coasts: bool
) -> World:
    return World(addresses, shared, rows, ids, table, coupled, coasts)


@njit(inline="always")
def _machine(world: World, i: int) -> Machine:
    at = world.addresses[i]
    states = (_policy_at(at[2]), _policy_at(at[3]), _policy_at(at[4]), _policy_at(at[5]))
    policies = StackPolicies(states, PolicyFunctions(at[6], at[7], at[8], at[9], at[10]))
    links, log = _links_at(world.shared[0]), _log_at(world.shared[1])
    return Machine(_engine_at(at[0]), _stack_at(at[1]), policies, world.rows, world.ids, links, log)


@njit(cache=True)
def _run(world: World, i: int, limit_s: float) -> float:
    """Do the steps of instance i that start before the limit, up to one of which others must hear; return when."""
    x = _machine(world, i)
    table, coasts = world.table, world.coasts
    heard_s = np.inf
    while x.engine.clock_s < limit_s and log_has_room(x.log):
        if coasts and can_coast(x):
            coast(x, table, limit_s)
            if x.engine.clock_s >= limit_s:
                break
        heard_s = min(heard_s, step(x, table))
        limit_s = min(limit_s, heard_s)
    return heard_s


@njit(cache=True)
def advance(world: World, limit_s: float) -> float:
    """Do every step that starts before the limit; return the start of the first that is left.

    Stops early at what others must hear of: it stands in the log, and no step that it could reach has been done. Where
    instances are coupled, all stop there; else only the one concerned.
    """
    count = world.addresses.shape[0]
    if not world.coupled:
        first_s = np.inf
        for i in range(count):
            engine = _engine_at(world.addresses[i, 0])
            if engine.clock_s < limit_s:
                _run(world, i, limit_s)
            first_s = min(first_s, engine.clock_s)
        return first_s
    while True:
        i, first_s, second_s = _earliest(world)
        if not (first_s < limit_s and log_has_room(_log_at(world.shared[1]))):
            return first_s
        # One step at least where two start together, the lower number first.
        limit_s = min(limit_s, _run(world, i, min(limit_s, max(second_s, np.nextafter(first_s, np.inf)))))


@njit(cache=True)
def _earliest(world: World) -> tuple[int, float, float]:
    """Return the instance whose next step starts first, when that is, and when the next other one starts."""
    at, first_s, second_s = 0, np.inf, np.inf
    for i in range(world.addresses.shape[0]):
        clock_s = _engine_at(world.addresses[i, 0]).clock_s
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
    push_back(x.engine, x.rows, WAITING, row)
    _wake(x, now_s)


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
    return occupy(_links_at(world.shared[0]), i, source, target, cause, block_count, now_s)


@njit(cache=True)
def hand_off(world: World, source_instance: int, i: int, block_count: int, now_s: float) -> float:
    """Send blocks of KV to instance i from another one; return when they have arrived."""
    return occupy_handoff(_links_at(world.shared[0]), source_instance, i, block_count, now_s)


@njit(cache=True)
def read_log(world: World, row: Ints, kind: Ints, instance: Ints, time_s: Floats) -> int:
    """Copy the log to arrays of its capacity, empty it, and return the number of entries."""
    log = _log_at(world.shared[1])
    count = log.count
    for k in range(count):
        kind[k], row[k], instance[k], time_s[k] = log_entry(log, k)
    log.count = 0
    return int(count)


@njit(cache=True)
def poll(world: World, first: int, poll_time_s: float, out: Ints) -> None:
    """Copy what a poll saw of the instances from `first` on to `out` (instances, 3)."""
    for k in range(out.shape[0]):
        read_poll(_engine_at(world.addresses[first + k, 0]), poll_time_s, out[k])


@njit(cache=True)
def close(world: World, end_s: float) -> None:
    """Settle all accounts up to the end of the simulation."""
    for i in range(world.addresses.shape[0]):
        x = _machine(world, i)
        charge_moves(x, end_s)
        account(x.stack, end_s)
        observe(x.engine, end_s, used_blocks(x.stack))
