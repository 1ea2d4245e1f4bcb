"""From what happened to the tables that cross a stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline import metrics, schema
from pipeline.placement.base import CAUSES
from pipeline.placement.state import DRAM, HBM, REMOTE, SSD
from pipeline.serving.dispatch import ROLES
from pipeline.serving.link import BLOCKS, BUSY, WAIT
from pipeline.serving.scenario import SimulationOutput
from pipeline.serving.state import IN_BATCH, KV_BLOCKS, NONE, QUEUED, TOKENS, Floats
from pipeline.tables import from_columns
from pipeline.trace.shaping import measured_window_s
from pipeline.values import TIERS


@dataclass(frozen=True)
class Figures:
    """Figures of a whole simulation, as in table cells.

    mean_running_count, p90_running_count: running requests of an instance that decodes, over its time up to the last
    completion, idle time included.
    """

    makespan_s: float
    mean_running_count: float
    p90_running_count: float
    extrapolated_time_ratio: float
    preemption_count: int
    step_count: int
    arrived_per_s: float
    measured_s: float
    is_settled: bool


def figures(output: SimulationOutput) -> Figures:
    """Sum a simulation up."""
    decoding = [i for i, role in enumerate(output.scenario.roles) if role != "prefill"]
    batch_s = np.sum([output.instances[i].batch_s for i in decoding], axis=0)
    total_s = batch_s.sum()
    step_s = sum(use.step_s for use in output.instances)
    counts = np.arange(batch_s.size)
    first_s, last_s = measured_window_s(output.scenario.trace)
    measured_s = last_s - first_s
    return Figures(
        makespan_s=output.makespan_s,
        mean_running_count=float(counts @ batch_s / total_s) if total_s > 0 else 0.0,
        p90_running_count=float(np.searchsorted(np.cumsum(batch_s), 0.9 * total_s)),
        extrapolated_time_ratio=sum(use.outside_s for use in output.instances) / step_s if step_s > 0 else 0.0,
        preemption_count=int(output.rows.preemption_count.sum()),
        step_count=sum(use.step_count for use in output.instances),
        arrived_per_s=float(is_measured(output).sum() / measured_s) if measured_s > 0 else float("nan"),
        measured_s=measured_s,
        is_settled=first_s == 0 or first_s >= _long_session_s(output),
    )


def tables(output: SimulationOutput, cell_id: str) -> dict[str, pa.Table]:
    """Give the tables requests, tier_usage, transfers, routing_decisions and timeline of a simulation."""
    made = (_requests, _tier_usage, _transfers, _routing_decisions, _timeline)
    return {name.__name__[1:]: name(output, cell_id) for name in made}


def _requests(output: SimulationOutput, cell_id: str) -> pa.Table:
    trace, count = output.scenario.trace, output.request_count
    rows, rejected = output.rows[:count], output.reject_reason != ""
    hits = rows.hit_tokens
    first_s, last_s = output.first_token_s, output.last_token_s
    decode_instance = output.instance[:count]
    if output.scenario.is_split:
        decode_instance = np.where(output.decodes_elsewhere, output.instance[count:], NONE)
    return from_columns(
        schema.REQUESTS,
        {
            "cell_id": cell_id,
            "request_id": trace.request_id,
            "session_id": trace.session_id,
            "class": np.array(trace.classes)[trace.class_id],
            "prefill_instance_id": _or_null(output.instance[:count]),
            "decode_instance_id": _or_null(decode_instance),
            "arrival_s": output.arrival_s,
            "input_tokens": trace.input_tokens,
            "output_tokens": trace.output_tokens,
            **{f"{TIERS[tier]}_tokens": hits[:, tier] for tier in (HBM, DRAM, SSD, REMOTE)},
            "recomputed_tokens": np.where(rejected, 0, trace.input_tokens - hits.sum(axis=1)),
            "served_tier": _served_tier(hits),
            "queue_ms": (rows.scheduled_s - output.arrival_s) * 1e3,
            "onboard_ms": np.where(rejected, np.nan, rows.loading_s * 1e3),
            "handoff_ms": output.handoff_s * 1e3,
            "ttft_ms": metrics.ttft_ms(output.arrival_s, first_s),
            "tpot_ms": metrics.tpot_ms(first_s, last_s, trace.output_tokens),
            "max_itl_ms": _max_itl_ms(output, rejected),
            "e2el_ms": metrics.e2el_ms(output.arrival_s, last_s),
            "preemption_count": output.rows.preemption_count.reshape(-1, count).sum(axis=0),
            "status": np.where(rejected, np.char.add("rejected:", output.reject_reason), "completed"),
            "is_measured": is_measured(output),
        },
    )


def _long_session_s(output: SimulationOutput) -> float:
    """First arrival to last token of a session that nine in ten do not exceed."""
    known = ~np.isnan(output.last_token_s)
    _, session = np.unique(output.scenario.trace.session_id[known], return_inverse=True)
    if not session.size:
        return 0.0
    first_s, last_s = np.full(session.max() + 1, np.inf), np.zeros(session.max() + 1)
    np.minimum.at(first_s, session, output.arrival_s[known])
    np.maximum.at(last_s, session, output.last_token_s[known])
    return float(np.quantile(last_s - first_s, 0.9))


def is_measured(output: SimulationOutput) -> NDArray[np.bool_]:
    """Whether each request (n,) arrived in the window that results are judged by."""
    first_s, last_s = measured_window_s(output.scenario.trace)
    return (output.arrival_s >= first_s) & (output.arrival_s <= last_s)


def _or_null(instance: NDArray[np.int64]) -> pa.Array:
    return pa.array(instance, pa.int64(), mask=instance == NONE)


def _served_tier(hit_tokens: NDArray[np.int64]) -> NDArray[np.str_]:
    slowest = np.where(hit_tokens > 0, np.arange(len(TIERS)), NONE).max(axis=1)
    return np.array([*TIERS, "recompute"])[slowest]


def _max_itl_ms(output: SimulationOutput, rejected: NDArray[np.bool_]) -> Floats:
    gap_ms = output.of_last_stay("max_gap_s") * 1e3
    return np.where(rejected | (output.scenario.trace.output_tokens == 1), np.nan, gap_ms)


def _tier_usage(output: SimulationOutput, cell_id: str) -> pa.Table:
    scenario = output.scenario
    tiers = [tier for tier, blocks in enumerate(scenario.capacity_blocks) if blocks > 0]
    uses = output.instances

    def column(name: str, unit: float) -> NDArray[np.generic]:
        return np.concatenate([getattr(use, name)[tiers] for use in uses]) * unit

    return from_columns(
        schema.TIER_USAGE,
        {
            "cell_id": cell_id,
            "instance_id": np.repeat(np.arange(len(uses)), len(tiers)),
            "tier": np.tile(np.array(TIERS)[tiers], len(uses)),
            "capacity_bytes": column("capacity_blocks", scenario.block_bytes),
            "lookup_tokens": column("lookup_blocks", scenario.trace.block_tokens),
            "hit_tokens": column("hit_blocks", scenario.trace.block_tokens),
            "evicted_blocks": column("evicted_blocks", 1),
            "dropped_blocks": column("dropped_blocks", 1),
            "mean_used_bytes": column("mean_used_blocks", scenario.block_bytes),
            "peak_used_bytes": column("peak_used_blocks", scenario.block_bytes),
        },
    )


def _transfers(output: SimulationOutput, cell_id: str) -> pa.Table:
    accounts = output.accounts
    instance, source, target, cause = np.nonzero(accounts[..., BLOCKS])
    found = accounts[instance, source, target, cause]
    return from_columns(
        schema.TRANSFERS,
        {
            "cell_id": [cell_id] * instance.size,
            "instance_id": instance,
            "source_tier": np.array(TIERS)[source],
            "target_tier": np.array(TIERS)[target],
            "cause": np.array(CAUSES)[cause],
            "block_count": found[:, BLOCKS].astype(np.int64),
            "transferred_bytes": found[:, BLOCKS] * output.scenario.block_bytes,
            "busy_s": found[:, BUSY],
            "wait_s": found[:, WAIT],
        },
    )


def _routing_decisions(output: SimulationOutput, cell_id: str) -> pa.Table:
    decisions = output.decisions
    return from_columns(
        schema.ROUTING_DECISIONS,
        {
            "cell_id": [cell_id] * decisions.request.size,
            "request_id": output.scenario.trace.request_id[decisions.request],
            "role": np.array(ROLES)[decisions.role],
            "instance_id": decisions.instance,
            "chosen_match_tokens": decisions.chosen_match_tokens,
            "best_match_tokens": decisions.best_match_tokens,
            "estimated_backlog_s": decisions.estimated_backlog_s,
            "snapshot_age_ms": decisions.snapshot_age_s * 1e3,
        },
    )


def _timeline(output: SimulationOutput, cell_id: str) -> pa.Table:
    """One row per interval and instance; all intervals are as long as the longest that an instance needed."""
    end_s = float(np.nanmin(output.arrival_s)) + output.makespan_s
    bin_s = max(use.bin_s for use in output.instances)
    count = max(int(np.ceil(end_s / bin_s)), 1)
    bins = np.array([_coarse(use.bins, round(bin_s / use.bin_s), count) for use in output.instances])
    start_s = np.arange(count) * bin_s
    length_s = np.minimum(bin_s, end_s - start_s)
    length_s[length_s <= 0] = bin_s
    values = bins / length_s[None, :, None]
    flat = values.reshape(-1, values.shape[2])
    return from_columns(
        schema.TIMELINE,
        {
            "cell_id": cell_id,
            "instance_id": np.repeat(np.arange(len(bins)), count),
            "start_s": np.tile(start_s, len(bins)),
            "length_s": np.tile(length_s, len(bins)),
            "queue_count": flat[:, QUEUED],
            "running_count": flat[:, IN_BATCH],
            "kv_used_ratio": flat[:, KV_BLOCKS] / output.scenario.stack_blocks[HBM],
            "tokens_per_s": flat[:, TOKENS],
        },
    )


def _coarse(bins: Floats, factor: int, count: int) -> Floats:
    """Join `factor` intervals into one, `count` in all; what lies at the very end belongs to the last."""
    whole = np.zeros(((count + 1) * factor, bins.shape[1]))
    whole[: len(bins)] = bins
    joined = whole.reshape(count + 1, factor, -1).sum(axis=1)
    joined[count - 1] += joined[count]
    return joined[:count]
