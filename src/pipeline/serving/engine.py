"""All engines of a cluster: Python's face of the compiled world."""

from __future__ import annotations

import numpy as np
from numba import njit

from pipeline.placement.checks import check_invariants, lookup_blocks
from pipeline.placement.state import HBM, Stack, StackTiers
from pipeline.predictor.step_time import pack
from pipeline.records import address_of
from pipeline.serving import world
from pipeline.serving.link import Links, accounts_of, make_links
from pipeline.serving.scenario import InstanceUse, Scenario
from pipeline.serving.stacks import make_stacks, time_writes
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
from pipeline.serving.streamed import charge_streams, set_streaming, streamed_blocks
from pipeline.serving.wiring import Wiring
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

    is_closed_loop: whether requests wait for others, wherever those are. coasts: false does every step by itself, to
    the same end. feed: the first tokens and completions, in the order in which they were simulated; fed: (1,) how many
    there are yet.
    """

    def __init__(self, scenario: Scenario, rows: Rows, is_closed_loop: bool, coasts: bool = True) -> None:
        count = len(scenario.roles)
        self.rows = rows
        self.stacks, self._kept = make_stacks(scenario)
        has_lower = any(scenario.capacity_blocks[HBM + 1 :])
        blocks = scenario.trace.block_count if scenario.reuses else 0
        longest = int((rows.input_tokens + rows.output_tokens).max(initial=1))
        idle_steps = IDLE_STEPS_PER_TOKEN * longest + 1000
        loader_blocks = blocks if has_lower else 0
        self._engines = [_make_engine(scenario, i, idle_steps, loader_blocks, coasts) for i in range(count)]
        self._entries, self.feed, self._counts = log_memory(rows.size)
        self.fed = self._counts[FED:]
        self._log = make_log(self._entries, self.feed, self._counts, rows.size)
        self._links = make_scenario_links(scenario)
        self._scenario = scenario
        for engine in self._engines:
            set_streaming(engine, scenario, self._links)
        for stack, tiers in self.stacks:
            time_writes(stack, tiers, self._links.state)
        self._table = pack(scenario.step_table)
        self._ids = np.ascontiguousarray(scenario.trace.block_ids, np.int64)
        # Whether what happens at one instance can reach another before the next event: then none may run ahead.
        reaches = is_closed_loop or scenario.is_split or self._links.is_shared or bool(scenario.shared_by)
        self._coupled = count > 1 and reaches
        self._agenda = np.zeros(count, np.int64)
        common = [address_of(self._table), address_of(rows), address_of(self._ids), self._ids.size]
        common += [address_of(self._links.state), address_of(self._log), address_of(self._agenda)]
        common += [world.run_address()]
        self.world = np.array(
            [
                [
                    address_of(engine),
                    0 if self._links.is_shared else address_of(network),
                    address_of(stack),
                    address_of(network),
                    *map(address_of, tiers.tiers),
                    *map(address_of, tiers.states),
                    *tiers.functions,
                    *common,
                ]
                for engine, (stack, tiers), network in zip(
                    self._engines, self.stacks, self._links.networks, strict=True
                )
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

    def handed_off(self, instance: int, row: int, now_s: float) -> None:
        """Tell an instance that the row's KV has come from another instance."""
        world.handed_off(self.world, instance, row, now_s)

    def fetch(self, instance: int, row: int, now_s: float) -> None:
        """Bring up what the row's chain has below HBM, if there is room for it."""
        world.fetch_ahead(self.world, instance, row, now_s)

    def let_go(self, instance: int, row: int, now_s: float) -> None:
        """Tell an instance that the blocks of a row that it kept are no longer needed."""
        world.let_go(self.world, instance, row, now_s)

    def begin_decode(self, instance: int, row: int, now_s: float) -> None:
        """Queue a row whose prompt another instance has computed, first token and all: its KV will be fetched."""
        world.begin_decode(self.world, instance, row, now_s)

    def hand_off(self, instance: int, source_instance: int, row: int, now_s: float) -> float:
        """Start moving the row's KV from the source instance; return when it is there."""
        return float(world.hand_off(self.world, instance, source_instance, row, now_s))

    def close(self, end_s: float) -> tuple[list[InstanceUse], Floats]:
        """Settle all accounts up to the end; return how the instances and their links were used."""
        world.close(self.world, end_s)
        uses = [_use(engine, *stack, end_s) for engine, stack in zip(self._engines, self.stacks, strict=True)]
        accounts = accounts_of(self._links.state)
        return charge_streams(uses, accounts, self._scenario, self._links), accounts


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
    engine.patience_s = scenario.prefetch.patience_s
    if scenario.hbm_bytes_per_s is not None:
        ranks = limits.tensor_parallel
        engine.hbm_bytes_per_s = scenario.hbm_bytes_per_s / scenario.model.kv_rank_share(ranks)
        engine.weights_read_s = scenario.model.rank_weight_bytes(ranks) / scenario.hbm_bytes_per_s
        engine.token_read_s = scenario.model.kv_rank_bytes_per_token(ranks) / scenario.hbm_bytes_per_s
    engine.bin_s = engine.bin_end_s = FIRST_BIN_S if interval_s is None else interval_s
    return engine


def make_scenario_links(scenario: Scenario) -> Links:
    """Make the links of a scenario's cluster. Raises InputError, see `make_links`."""
    ranks = scenario.engine.tensor_parallel
    wiring = Wiring(
        ranks=ranks,
        share=scenario.model.kv_rank_share(ranks),
        instance_count=len(scenario.roles),
        instances_per_node=scenario.instances_per_node,
        has_handoff=scenario.is_split,
        limits=scenario.link_limits,
    )
    has_tier = [blocks > 0 for blocks in scenario.capacity_blocks]
    return make_links(scenario.links, has_tier, scenario.block_bytes, scenario.pieces_per_block, wiring)


@njit(cache=True)
def _copy(engine: Engine) -> tuple[Floats, Floats]:
    return batch_s(engine)[:, 0].copy(), bins(engine).copy()


def _use(engine: Engine, stack: Stack, tiers: StackTiers, end_s: float) -> InstanceUse:
    """Sum up what one instance used; of a tier that several use, its part of the capacity and what is in it."""
    batch, table = _copy(engine)
    used = np.flatnonzero(table.any(axis=1))
    parts = np.array([1 / max(tier.stack_count, 1) for tier in tiers.tiers])
    seconds = np.array([tier.used_block_seconds for tier in tiers.tiers]) * parts
    return InstanceUse(
        lookup_blocks=lookup_blocks(stack),
        hit_blocks=stack.hit_blocks.copy(),
        evicted_blocks=stack.evicted_blocks.copy(),
        dropped_blocks=stack.dropped_blocks.copy(),
        capacity_blocks=np.array([tier.capacity_blocks for tier in tiers.tiers]) * parts,
        mean_used_blocks=seconds / end_s if end_s > 0 else np.zeros(seconds.size),
        peak_used_blocks=np.array([tier.peak_blocks for tier in tiers.tiers]) * parts,
        moved_blocks=stack.moved_blocks.copy(),
        streamed_blocks=streamed_blocks(engine),
        blocks_left=int(stack.pinned_blocks + stack.private_blocks),
        problems=check_invariants(stack, tiers),
        batch_s=batch,
        bins=table[: used[-1] + 1] if used.size else table[:0],
        bin_s=float(engine.bin_s),
        step_count=int(engine.step_count),
        step_s=float(engine.step_s),
        outside_s=float(engine.outside_s),
    )
