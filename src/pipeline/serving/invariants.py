"""What must hold at the end of every simulation, whatever the scenario."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.placement.base import KV_HANDOFF, OFFLOAD, ONBOARD
from pipeline.placement.state import DRAM, HBM
from pipeline.serving.link import BLOCKS
from pipeline.serving.scenario import SimulationOutput


def check(output: SimulationOutput) -> None:
    """Raise RuntimeError, naming the invariants and where they are broken, unless all hold."""
    broken = [*_requests(output), *_blocks(output), *_moves(output)]
    if broken:
        raise RuntimeError("invariant broken: " + "; ".join(broken))


def _requests(output: SimulationOutput) -> Iterator[str]:
    rejected = output.reject_reason != ""
    completed = ~np.isnan(output.last_token_s)
    if np.isnan(output.arrival_s).any():
        yield f"every request arrives: {np.isnan(output.arrival_s).sum()} did not"
    if np.any(completed == rejected):
        yield (
            f"arrived = completed + rejected: {output.request_count} arrived, {completed.sum()} completed, "
            f"{rejected.sum()} rejected"
        )
    if not (np.isfinite(output.makespan_s) and output.makespan_s >= 0):
        yield f"makespan is finite: {output.makespan_s}"
    rows = output.rows[: output.request_count]
    times = np.array([output.arrival_s, rows.scheduled_s, output.first_token_s, output.last_token_s])[:, completed]
    if np.any(np.diff(times, axis=0) < 0):
        yield "arrival <= scheduled <= first token <= last token"
    hits = rows.hit_tokens.sum(axis=1)
    if np.any(hits[completed] >= rows.input_tokens[completed]):
        yield "the last prompt token is always computed"
    generated = output.of_last_stay("generated_tokens")
    if np.any(generated[completed] != output.scenario.trace.output_tokens[completed]):
        yield "every output token is put out"


def _blocks(output: SimulationOutput) -> Iterator[str]:
    for i, use in enumerate(output.instances):
        for problem in use.problems:
            yield f"instance {i}: {problem}"
        if use.blocks_left:
            yield f"instance {i}: no block is in use at the end, but {use.blocks_left} are"


def _moves(output: SimulationOutput) -> Iterator[str]:
    charged = output.accounts[..., BLOCKS]
    for i, use in enumerate(output.instances):
        expected = use.moved_blocks.astype(float)
        expected[DRAM, HBM, ONBOARD] += use.streamed_blocks[0]
        expected[HBM, DRAM, OFFLOAD] += use.streamed_blocks[1]
        if output.scenario.is_split:
            here = output.instance[output.request_count :] == i
            sent = output.rows.handoff_blocks[output.request_count :][here & output.decodes_elsewhere]
            expected[HBM, HBM, KV_HANDOFF] = sent.sum()
        if not np.array_equal(charged[i], expected):
            moved, crossed = expected.sum(), charged[i].sum()
            yield f"instance {i}: every block that moved crossed a link: {moved:.0f} moved, {crossed:.0f} crossed"
