"""What there is to know of a trace before anything is simulated: `TraceCard`, and whether a cache tier can pay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.trace.request_trace import Floats, Ints, RequestTrace
from pipeline.trace.reuse import hit_ratio_curve, infinite_cache_hit_ratio, reuse_distances

QUANTILES = (0.1, 0.5, 0.9, 0.99, 1.0)
CURVE_POINTS = 40
TIME_BINS = 60
PEAK_WINDOW_S = 60.0


@dataclass(frozen=True)
class TierReach:
    """What the tiers down to this one hold together, and the share of block look-ups that an LRU so large hits."""

    tier: str
    tokens: int
    hit_ratio: float


@dataclass(frozen=True)
class TimeBins:
    """Intervals of equal length, (TIME_BINS,): arrivals, and tokens of distinct blocks listed in each (its working
    set) and ever since the start."""

    start_s: Floats
    arrivals_per_s: Floats
    working_set_tokens: Ints
    seen_tokens: Ints


@dataclass(frozen=True)
class TraceCard:
    """A trace in figures.

    assumed: what of it is not known, "" if all is. peak_rate_ratio: the busiest minute over the mean. quantiles: of
    lengths and gaps at QUANTILES, by name (_tokens, _s, _count). hits are of full prompt blocks; curve_tokens,
    curve_hit_ratio (k,): LRU of one instance that sees every request, in order of arrival, by capacity. long_ratio:
    prompts longer than those that step times were measured for (profiled_tokens), and the share of all prompt tokens
    in them.
    """

    name: str
    assumed: str
    request_count: int
    session_count: int
    closed_loop_ratio: float
    duration_s: float
    rate_per_s: float
    peak_rate_ratio: float
    input_tokens: int
    output_tokens: int
    classes: Mapping[str, int]
    quantiles: Mapping[str, tuple[float, ...]]
    has_prefixes: bool
    block_tokens: int
    unique_tokens: int
    infinite_cache_hit_ratio: float
    curve_tokens: Ints
    curve_hit_ratio: Floats
    tiers: tuple[TierReach, ...]
    bins: TimeBins
    profiled_tokens: int
    long_ratio: float
    long_tokens_ratio: float


def describe(trace: RequestTrace, tier_blocks: Mapping[str, int], profiled_tokens: int, assumed: str = "") -> TraceCard:
    """Describe a trace to someone with one instance whose tiers hold `tier_blocks`, fastest first.

    assumed: what of it is not known, see TraceSource.
    """
    duration_s = float(trace.arrival_s[-1])
    distances = reuse_distances(trace)
    capacities = _capacities(trace.block_count)
    reach = {tier: sum(list(tier_blocks.values())[: i + 1]) for i, tier in enumerate(tier_blocks)}
    curve = hit_ratio_curve(distances, np.array([*capacities, *reach.values()], np.int64))
    long = trace.input_tokens > profiled_tokens
    sessions = np.unique(trace.session_id)
    return TraceCard(
        name=trace.name,
        assumed=assumed,
        request_count=trace.request_count,
        session_count=sessions.size,
        closed_loop_ratio=float(np.mean(~np.isnan(trace.think_s))),
        duration_s=duration_s,
        rate_per_s=trace.request_count / duration_s if duration_s > 0 else float("inf"),
        peak_rate_ratio=_peak_ratio(trace.arrival_s, duration_s),
        input_tokens=int(trace.input_tokens.sum()),
        output_tokens=int(trace.output_tokens.sum()),
        classes={name: int(np.count_nonzero(trace.class_id == i)) for i, name in enumerate(trace.classes)},
        quantiles=_quantiles(trace),
        has_prefixes=trace.has_prefixes,
        block_tokens=trace.block_tokens,
        unique_tokens=trace.block_count * trace.block_tokens,
        infinite_cache_hit_ratio=infinite_cache_hit_ratio(trace),
        curve_tokens=capacities * trace.block_tokens,
        curve_hit_ratio=curve[: capacities.size],
        tiers=tuple(
            TierReach(tier, blocks * trace.block_tokens, float(ratio))
            for (tier, blocks), ratio in zip(reach.items(), curve[capacities.size :], strict=True)
        ),
        bins=_bins(trace, duration_s),
        profiled_tokens=profiled_tokens,
        long_ratio=float(np.mean(long)),
        long_tokens_ratio=float(trace.input_tokens[long].sum() / trace.input_tokens.sum()),
    )


def session_tokens(trace: RequestTrace) -> float:
    """KV tokens that a session keeps at its longest, on average."""
    longest = np.zeros(int(trace.session_id.max()) + 1, np.int64)
    np.maximum.at(longest, trace.session_id, trace.input_tokens + trace.output_tokens)
    return float(longest[longest > 0].mean())


def _capacities(block_count: int) -> Ints:
    """Cache sizes in blocks, evenly spaced in their logarithm up to all there are."""
    return np.unique(np.geomspace(1, max(block_count, 1), CURVE_POINTS).round().astype(np.int64))


def _peak_ratio(arrival_s: Floats, duration_s: float) -> float:
    if duration_s < PEAK_WINDOW_S:
        return 1.0
    counts = np.bincount((arrival_s // PEAK_WINDOW_S).astype(np.int64))
    return float(counts.max() / PEAK_WINDOW_S * duration_s / arrival_s.size)


def _quantiles(trace: RequestTrace) -> dict[str, tuple[float, ...]]:
    _, session, turns = np.unique(trace.session_id, return_inverse=True, return_counts=True)
    by_session = np.argsort(session, kind="stable")
    follows = np.diff(session[by_session], prepend=-1) == 0
    gaps_s = np.diff(trace.arrival_s[by_session], prepend=0.0)[follows]
    thinks_s = trace.think_s[~np.isnan(trace.think_s)]
    values: dict[str, NDArray[Any]] = {
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "requests_per_session_count": turns,
        "think_s" if thinks_s.size else "gap_in_session_s": thinks_s if thinks_s.size else gaps_s,
    }
    return {name: tuple(np.quantile(found, QUANTILES).tolist()) for name, found in values.items() if found.size}


def _bins(trace: RequestTrace, duration_s: float) -> TimeBins:
    length_s = max(duration_s, 1e-9) / TIME_BINS
    place = np.minimum(trace.arrival_s / length_s, TIME_BINS - 1).astype(np.int64)
    listed = place[trace.block_places()[0]]
    blocks = listed * max(trace.block_count, 1) + trace.block_ids
    touched = np.bincount(np.unique(blocks) // max(trace.block_count, 1), minlength=TIME_BINS)
    first = np.unique(trace.block_ids, return_index=True)[1]
    fresh = np.bincount(listed[first], minlength=TIME_BINS)
    return TimeBins(
        start_s=length_s * np.arange(TIME_BINS, dtype=np.float64),
        arrivals_per_s=np.bincount(place, minlength=TIME_BINS) / length_s,
        working_set_tokens=touched * trace.block_tokens,
        seen_tokens=np.cumsum(fresh) * trace.block_tokens,
    )
