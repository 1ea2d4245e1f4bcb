"""A trace card as a page: the words of the terminal, and what a picture says better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from pipeline.page import COLOURS, PAGE_COLOURS, Page
from pipeline.trace.card import QUANTILES, TraceCard
from pipeline.trace.card_words import lines

HEIGHT = 220
Rows = Sequence[Mapping[str, Any]]


def page_of(card: TraceCard, quality: Rows, capacities: Rows) -> str:
    """HTML of the card; quality: rows of TRACE_QUALITY, what became of every row; capacities: of each tier."""
    page = Page(f"kvplan: traffic of {card.name}")
    loud = 2 if card.assumed else 1
    for line in lines(card)[:loud]:
        page.paragraph(line, "loud")
    page.items(lines(card)[loud:])
    charts = [_arrivals(card)]
    if card.has_prefixes:
        charts = [_reuse(card), _working_set(card), *charts]
    page.figure(charts)
    names = ["max" if q == 1 else f"P{100 * q:g}" for q in QUANTILES]
    rows = [{"of": name, **dict(zip(names, values, strict=True))} for name, values in card.quantiles.items()]
    page.table("Lengths and times", rows, is_open=True)
    reach = [{"tiers down to": t.tier, "hold tokens": t.tokens, "LRU hits of blocks": t.hit_ratio} for t in card.tiers]
    page.table("What the tiers of one instance can hit, if it sees every request", reach, is_open=True)
    page.table("What the tiers hold: of an instance, of each of its ranks, of a node", capacities)
    page.table("Rows of the source", [{k: row[k] for k in ("reason", "row_count", "first_rows")} for row in quality])
    return page.html()


def _chart(layers: Sequence[alt.Chart], about: str) -> dict[str, Any]:
    chart = alt.layer(*layers).properties(width="container", height=HEIGHT, description=about, title=about)
    return chart.to_dict() | {"config": PAGE_COLOURS | {"title": {"color": "currentColor", "fontSize": 12}}}


def _reuse(card: TraceCard) -> dict[str, Any]:
    curve = zip(card.curve_tokens.tolist(), card.curve_hit_ratio.tolist(), strict=True)
    values = [{"tokens": tokens, "hits": hits} for tokens, hits in curve]
    marks = [{"tokens": max(t.tokens, 1), "tier": t.tier} for t in card.tiers]
    x = alt.X("tokens:Q", title="tokens cached", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s"))
    y = alt.Y("hits:Q", title="block look-ups that hit", axis=alt.Axis(format="%"))
    line = alt.Chart(alt.InlineData(values=values)).mark_line(color=COLOURS[0]).encode(x=x, y=y)
    rules = alt.Chart(alt.InlineData(values=marks)).mark_rule(strokeDash=[4, 3], color=COLOURS[3]).encode(x=x)
    text = alt.Chart(alt.InlineData(values=marks)).mark_text(align="left", dx=3, color=COLOURS[3])
    return _chart([line, rules, text.encode(x=x, y=alt.value(10), text="tier:N")], "Reuse: LRU hits by cache size")


def _working_set(card: TraceCard) -> dict[str, Any]:
    bins = card.bins
    kinds = {"within the interval": bins.working_set_tokens, "since the start": bins.seen_tokens}
    values = [
        {"s": s, "tokens": tokens, "distinct": kind}
        for kind, found in kinds.items()
        for s, tokens in zip(bins.start_s.tolist(), found.tolist(), strict=True)
    ]
    line = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("s:Q", title="s"),
            y=alt.Y("tokens:Q", title="tokens of distinct blocks", axis=alt.Axis(format="~s")),
            color=alt.Color("distinct:N", scale=alt.Scale(range=COLOURS), legend=alt.Legend(orient="bottom")),
        )
    )
    return _chart([line], "Working set over time")


def _arrivals(card: TraceCard) -> dict[str, Any]:
    bins = zip(card.bins.start_s.tolist(), card.bins.arrivals_per_s.tolist(), strict=True)
    values = [{"s": s, "rate": rate} for s, rate in bins]
    line = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(interpolate="step-after", color=COLOURS[0])
        .encode(x=alt.X("s:Q", title="s"), y=alt.Y("rate:Q", title="requests per second"))
    )
    return _chart([line], "Arrivals over time")
