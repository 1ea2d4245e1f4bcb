"""The tier stacks of a cluster, with the tiers that instances of a node, or all of them, have in common."""

from __future__ import annotations

import numpy as np

from pipeline.eviction.facts import BlockFacts, make_facts
from pipeline.placement.state import CLUSTER, HBM, NODE, SharedTier, Stack, StackTiers, make_shared_tier, make_stack
from pipeline.serving.link import LinkState
from pipeline.serving.scenario import Scenario
from pipeline.values import TIERS

SCOPES = {"node": NODE, "cluster": CLUSTER}


def make_stacks(scenario: Scenario) -> tuple[list[tuple[Stack, StackTiers]], list[object]]:
    """Make the stack of each instance, empty, and what must be kept as long as they are used."""
    blocks = scenario.trace.block_count if scenario.reuses else 0
    facts = _facts(scenario) if scenario.eviction.needs_facts else None
    shared: dict[tuple[int, int], SharedTier] = {}
    where: dict[tuple[int, int], np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}
    stacks = []
    count = len(scenario.roles)
    capacities = np.array(scenario.stack_blocks, np.int64)
    for instance in range(count):
        of_instance = {}
        for name, by in scenario.shared_by.items():
            tier, scope = TIERS.index(name), SCOPES[by]
            size = scenario.instances_per_node if scope == NODE else count
            group = instance // size
            if (tier, group) not in shared:
                users = min((group + 1) * size, count) - group * size
                bits = where.setdefault((scope, group), np.zeros(blocks, np.uint8))
                capacity = int(capacities[tier]) * users
                shared[tier, group] = make_shared_tier(
                    tier, blocks, capacity, scenario.eviction, scenario.placement, scope, bits, facts
                )
            of_instance[tier] = shared[tier, group]
        stacks.append(make_stack(blocks, capacities, scenario.eviction, scenario.placement, facts, of_instance))
    return stacks, [facts, shared, where]


def _facts(scenario: Scenario) -> BlockFacts:
    trace = scenario.trace
    arrival_s = np.repeat(trace.arrival_s, np.diff(trace.block_offset))
    return make_facts(trace.block_ids, trace.block_offset, arrival_s, trace.block_count)


def time_writes(stack: Stack, tiers: StackTiers, links: LinkState) -> None:
    """Tell a stack what its links take, so that it knows when a block that is written will be there."""
    if any(tier.capacity_blocks for tier in tiers.tiers[HBM + 1 :]):
        stack.times_writes = True
        stack.latency_s[:] = links.latency_s
        stack.block_s[:] = links.block_s
