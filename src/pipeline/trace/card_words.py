"""A trace card in words: what a user reads on the terminal before any study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipeline.trace.card import QUANTILES, TraceCard

WORTH_RATIO = 0.01
"""Hits below which a tier is said to add nothing."""


def lines(card: TraceCard) -> list[str]:
    """The card, a line per fact, the verdict first."""
    assumed = [f"assumed: {card.assumed}"] if card.assumed else []
    return [verdict(card), *assumed, *_traffic(card), *_lengths(card), *_reuse(card), *_range(card)]


def verdict(card: TraceCard) -> str:
    """Whether a tier below HBM can pay at all, by what the blocks of the prompts allow."""
    if not card.has_prefixes:
        return (
            "verdict: no prefixes are known, so nothing can be said of caching: tiers and policies cannot matter here"
        )
    most = card.infinite_cache_hit_ratio
    if most < WORTH_RATIO:
        return f"verdict: prompts share {most:.1%} of their tokens: no cache can pay, of whatever size"
    first, last = card.tiers[0], card.tiers[-1]
    gain = last.hit_ratio - first.hit_ratio
    if gain < WORTH_RATIO:
        return (
            f"verdict: {first.tier} alone ({_count(first.tokens)} tokens) finds {first.hit_ratio:.1%} of the blocks; "
            f"tiers below it add {gain:.1%}: on one instance with this traffic they cannot pay"
        )
    adds = ", ".join(
        f"{lower.tier} adds {lower.hit_ratio - upper.hit_ratio:.1%}"
        for upper, lower in zip(card.tiers, card.tiers[1:], strict=False)
    )
    return (
        f"verdict: a tier below {first.tier} can pay: {first.tier} alone finds {first.hit_ratio:.1%} of the blocks, "
        f"{adds} (LRU; running requests take some of {first.tier}, so less stays); a cache without end would find "
        f"{most:.1%} of the prompt tokens"
    )


def capacity(tier: Mapping[str, Any]) -> str:
    """What a tier of one instance holds, and what that is per rank and per node; the fields of a TierCapacity."""
    return (
        f"{tier['tier']}: {_count(tier['tokens'])} tokens, {tier['session_count']:,.3g} of its sessions at their "
        f"longest; {tier['capacity_bytes'] / 1e9:,.4g} GB an instance, {tier['rank_bytes'] / 1e9:,.4g} GB a rank, "
        f"{tier['node_bytes'] / 1e9:,.4g} GB a node"
    )


def _traffic(card: TraceCard) -> list[str]:
    loop = (
        "open loop" if card.closed_loop_ratio == 0 else f"closed loop ({card.closed_loop_ratio:.0%} follow an answer)"
    )
    rate = "all at once" if math.isinf(card.rate_per_s) else f"{card.rate_per_s:.3g}/s over {card.duration_s:.4g} s"
    sessions = "no sessions"
    if card.session_count < card.request_count:
        sessions = f"{card.session_count:,} sessions or prefix groups"
    told = [
        f"traffic: {card.request_count:,} requests, {sessions}, {loop}, {rate}, "
        f"busiest minute {card.peak_rate_ratio:.2g} times the mean",
        f"tokens: {card.input_tokens:,} of prompts, {card.output_tokens:,} of outputs"
        + ("" if math.isinf(card.rate_per_s) else f"; {card.input_tokens / card.duration_s:,.0f} prompt tokens/s"),
    ]
    if len(card.classes) > 1:
        told.append("classes: " + ", ".join(f"{name} {count:,}" for name, count in card.classes.items()))
    return told


def _lengths(card: TraceCard) -> list[str]:
    names = ", ".join("max" if q == 1 else f"P{100 * q:g}" for q in QUANTILES)
    return [
        f"{name.replace('_', ' ')}: {', '.join(f'{value:,.4g}' for value in values)} ({names})"
        for name, values in card.quantiles.items()
    ]


def _reuse(card: TraceCard) -> list[str]:
    if not card.has_prefixes:
        return []
    busiest = int(card.bins.working_set_tokens.max())
    told = [
        f"reuse: {_count(card.unique_tokens)} tokens of distinct blocks of {card.block_tokens}; at most "
        f"{_count(busiest)} within one sixtieth of the time"
    ]
    for share in (0.5, 0.9):
        reached = card.curve_hit_ratio >= share * card.curve_hit_ratio[-1]
        at = card.curve_tokens[int(reached.argmax())]
        told.append(f"{share:.0%} of what LRU can ever find takes a cache of {_count(int(at))} tokens")
    return told


def _range(card: TraceCard) -> list[str]:
    if card.long_ratio == 0:
        return [f"profiled range: every prompt is within the {card.profiled_tokens:,} tokens that were measured"]
    return [
        f"profiled range: {card.long_ratio:.1%} of the prompts, {card.long_tokens_ratio:.1%} of all prompt tokens, are "
        f"longer than the {card.profiled_tokens:,} tokens that were measured: their time is extrapolated"
    ]


def _count(tokens: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return str(tokens)
