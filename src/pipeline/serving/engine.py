"""All engines of a cluster: Python's face of the compiled world."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.eviction.facts import BlockFacts, make_facts
from pipeline.placement.stack import check_invariants, lookup_blocks, make_stack
from pipeline.predictor.step_time import pack
from pipeline.records import address_of
from pipeline.serving import world
from pipeline.serving.link import accounts_of, make_links
from pipeline.serving.scenario import InstanceUse, Scenario
from pipeline.serving.state import (
    FED,
    WRITTEN,
    Engine,
    Floats,
    Rows,
    batch_s,
    bins,
    log_memory,
    make_engine,
    make_log,
)
from pipeline.spec import InputError

BINS = 400
MOST_BINS = 20_000
FIRST_BIN_S = 2.0**-10
IDLE_STEPS_PER_TOKEN = 100
"""Steps without a completion, per token of the longest request, that only an engine in a circle would do."""


Entry = tuple[float, int, int, int]
"""An entry of the log: when, what (its kind), at which instance, to which row."""


class Engines:
    """The engines of a scenario, idle; `rows` are the stays that may come.

    coupled: whether one instance's events may reach another. coasts: false does every step by itself, to the same end.
    feed: the first tokens and completions, in the order in which they were simulated; fed: (1,) how many there are yet.
    """

    def __init__(self, scenario: Scenario, rows: Rows, coupled: bool, coasts: bool = True) -> None:
        count = len(scenario.roles)
        blocks = scenario.trace.block_count if scenario.engine.prefix_cache else 0
        capacity = np.array(scenario.capacity_blocks, np.int64)
        self._facts = _facts(scenario) if scenario.eviction.needs_facts else None
        made = [make_stack(blocks, capacity, scenario.eviction, scenario.placement, self._facts) for _ in range(count)]
        loader_blocks = blocks if capacity[1:].any() else 0
        self.rows = rows
        self.stacks = [stack for stack, _ in made]
        longest = int((rows.input_tokens + rows.output_tokens).max(initial=1))
        idle_steps = IDLE_STEPS_PER_TOKEN * longest + 1000
        self._engines = [_make_engine(scenario, i, idle_steps, loader_blocks, coasts) for i in range(count)]
        self._entries, self.feed, self._counts = log_memory(rows.size)
        self.fed = self._counts[FED:]
        self._log = make_log(self._entries, self.feed, self._counts, rows.size)
        self._links = _make_links(scenario)
        self._table = pack(scenario.step_table)
        self._ids = np.ascontiguousarray(scenario.trace.block_ids, np.int64)
        self._policies = [policies for _, policies in made]
        self._coupled = coupled
        self._agenda = np.zeros(count, np.int64)
        shared = [address_of(self._table), address_of(rows), address_of(self._ids), self._ids.size]
        shared += [address_of(self._links), address_of(self._log), address_of(self._agenda)]
        self.world = np.array(
            [
                [address_of(engine), address_of(stack), *map(address_of, policies.states), *policies.functions, *shared]
                for engine, (stack, policies) in zip(self._engines, made, strict=True)
            ],
            np.int64,
        )

    def advance(self, limit_s: float) -> tuple[float, list[Entry]]:
        """Do every step that starts before the limit, unless others must hear of something first.

        Returns the start of the first step that is left, and what happened, or is known to happen at the end of a step
        that has begun.
        """
        first_s, count = world.advance(self.world, self._coupled, limit_s)
        if not count:
            return first_s, []
        self._counts[WRITTEN] = 0
        return first_s, self._entries[:count].tolist()

    def submit(self, instance: int, row: int, now_s: float) -> None:
        """Queue a row at an instance."""
        world.submit(self.world, instance, row, now_s)

    def loaded(self, instance: int, row: int, now_s: float) -> None:
        """Tell an instance that what the row was loading has arrived."""
        world.loaded(self.world, instance, row, now_s)

    def let_go(self, instance: int, row: int, now_s: float) -> None:
        """Tell an instance that the blocks of a row that it kept are no longer needed."""
        world.let_go(self.world, instance, row, now_s)

    def begin_decode(self, instance: int, row: int, now_s: float) -> None:
        """Queue a row whose prompt another instance has computed, first token and all: its KV will be fetched."""
        world.begin_decode(self.world, instance, row, now_s)

    def load(self, instance: int, source_instance: int, row: int, now_s: float) -> tuple[float, float]:
        """Start moving what the row waits for.

        Returns when all has arrived, and when the KV has left the source instance (NaN if none came from there).
        """
        arrived_s, left_s = world.load(self.world, instance, source_instance, row, now_s)
        return arrived_s, left_s

    def close(self, end_s: float) -> tuple[list[InstanceUse], Floats]:
        """Settle all accounts up to the end; return how the instances and their links were used."""
        world.close(self.world, end_s)
        uses = [_use(engine, stack, end_s) for engine, stack in zip(self._engines, self.stacks, strict=True)]
        return uses, accounts_of(self._links)


def _facts(scenario: Scenario) -> BlockFacts:
    trace = scenario.trace
    arrival_s = np.repeat(trace.arrival_s, np.diff(trace.block_offset))
    return make_facts(trace.block_ids, trace.block_offset, arrival_s, trace.block_count)


def _make_engine(scenario: Scenario, number: int, max_idle_steps: int, loader_blocks: int, coasts: bool) -> Engine:
    limits, interval_s = scenario.engine, scenario.timeline_interval_s
    if interval_s is not None and not interval_s > 0:
        raise InputError(f"timeline_interval_s: given {interval_s}, expected more than 0")
    engine = make_engine(
        number,
        limits.max_running,
        limits.max_batched_tokens,
        scenario.trace.block_tokens,
        loader_blocks,
        BINS if interval_s is None else MOST_BINS,
    )
    engine.max_idle_steps = max_idle_steps
    engine.coasts = coasts
    engine.plans_ahead = limits.async_scheduling
    engine.ranks = limits.scheduling != "fcfs"
    engine.preempts_by_rank = limits.scheduling == "priority"
    engine.poll_s = scenario.router.poll_interval_s
    engine.bin_s = engine.bin_end_s = FIRST_BIN_S if interval_s is None else interval_s
    return engine


def _make_links(scenario: Scenario) -> np.record:
    return make_links(
        scenario.links,
        [int(blocks) for blocks in scenario.capacity_blocks],
        scenario.block_bytes,
        scenario.pieces_per_block,
        scenario.engine.tensor_parallel,
        len(scenario.roles),
        scenario.instances_per_node,
        scenario.is_split,
    )


@njit(cache=True)
def _copy(engine: Engine) -> tuple[Floats, Floats]:
    return batch_s(engine)[:, 0].copy(), bins(engine).copy()


def _use(engine: Engine, stack: np.record, end_s: float) -> InstanceUse:
    batch, table = _copy(engine)
    used = np.flatnonzero(table.any(axis=1))
    seconds = stack.used_block_seconds
    return InstanceUse(
        lookup_blocks=lookup_blocks(stack),
        hit_blocks=stack.hit_blocks.copy(),
        evicted_blocks=stack.evicted_blocks.copy(),
        mean_used_blocks=seconds / end_s if end_s > 0 else np.zeros(seconds.size),
        peak_used_blocks=stack.peak_blocks.copy(),
        moved_blocks=stack.moved_blocks.copy(),
        blocks_left=int(stack.pinned_blocks + stack.private_blocks),
        problems=check_invariants(stack),
        batch_s=batch,
        bins=table[: used[-1] + 1] if used.size else table[:0],
        bin_s=float(engine.bin_s),
        step_count=int(engine.step_count),
        step_s=float(engine.step_s),
        outside_s=float(engine.outside_s),
    )
