"""What a placement that streams KV tells an engine, and what comes of it in the accounts, see `Streaming`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.placement.base import OFFLOAD, ONBOARD
from pipeline.placement.state import DRAM, HBM
from pipeline.serving.link import BLOCKS, BUSY, Links
from pipeline.serving.scenario import InstanceUse, Scenario
from pipeline.serving.state import Engine, Floats


def set_streaming(engine: Engine, scenario: Scenario, links: Links) -> None:
    """Tell an engine what its steps read and write. Raises ValueError for prefill and decode at different instances."""
    streaming = scenario.placement.streaming
    if streaming is None:
        return
    streaming.check_cluster(scenario.cluster)
    engine.streams, engine.overlaps = True, streaming.overlaps
    engine.attended_ratio = streaming.attended_ratio
    engine.dram_ratio, engine.read_ratio = streaming.dram_ratio, streaming.read_ratio
    block_s = links.state.block_s / scenario.trace.block_tokens
    engine.read_s, engine.write_s = block_s[DRAM, HBM], block_s[HBM, DRAM]


def streamed_blocks(engine: Engine) -> tuple[float, float]:
    """Blocks that an engine's steps have read from DRAM, and written there."""
    read, written = engine.streamed_tokens / engine.block_tokens
    return float(read), float(written)


def charge_streams(uses: list[InstanceUse], accounts: Floats, scenario: Scenario, links: Links) -> list[InstanceUse]:
    """Enter what steps read and wrote into the accounts, and spread what requests held over the tiers by its shares."""
    streaming = scenario.placement.streaming
    if streaming is None:
        return uses
    for (source, target, cause), k in (((DRAM, HBM, ONBOARD), 0), ((HBM, DRAM, OFFLOAD), 1)):
        blocks = np.array([use.streamed_blocks[k] for use in uses])
        accounts[:, source, target, cause, BLOCKS] += blocks
        accounts[:, source, target, cause, BUSY] += blocks * links.state.block_s[source, target]
    ratios, capacity = np.array(streaming.ratios), np.array(scenario.capacity_blocks, np.float64)
    return [
        replace(
            use,
            capacity_blocks=capacity,
            mean_used_blocks=use.mean_used_blocks[HBM] * ratios,
            peak_used_blocks=use.peak_used_blocks[HBM] * ratios,
        )
        for use in uses
    ]
