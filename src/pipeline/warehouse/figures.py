"""The figures of the page, as Vega-Lite specifications with their data inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.page import COLOURS, PAGE_COLOURS

Row = Mapping[str, Any]
ROW_HEIGHT, CHART_HEIGHT = 16, 260
COMPUTE = "compute"


@dataclass(frozen=True)
class Measure:
    """What the horizontal axis shows: a column, its interval's columns, and words."""

    title: str
    value: str
    low: str
    high: str


GOODPUT = Measure("requests per second within the SLO", "goodput_per_s", "goodput_low_per_s", "goodput_high_per_s")
TTFT = Measure("TTFT, 99th percentile, ms", "ttft_p99_ms", "ttft_p99_low_ms", "ttft_p99_high_ms")


def intervals_chart(rows: Sequence[Row], measure: Measure, group: str, option: str, about: str) -> dict[str, Any]:
    """Means with 95 % intervals: a line of points per `group`, one point per `option`. Returns the specification."""
    shown = [group, option, measure.value, measure.low, measure.high, "seed_count", "verdict"]
    values = [{name: _finite(row[name]) for name in shown} for row in rows]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y(f"{group}:N", title=None, sort=_in_order(rows, group), axis=alt.Axis(labelLimit=140)),
        yOffset=alt.YOffset(f"{option}:N", sort=_in_order(rows, option)),
        color=alt.Color(
            f"{option}:N",
            title=option,
            sort=_in_order(rows, option),
            scale=_colours(len({row[option] for row in rows})),
            legend=alt.Legend(orient="bottom", columns=2, labelLimit=200),
        ),
        tooltip=[alt.Tooltip(f"{name}:{'N' if i < 2 or name == 'verdict' else 'Q'}") for i, name in enumerate(shown)],
    )
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X(f"{measure.low}:Q", title=measure.title, scale=alt.Scale(zero=False)), x2=f"{measure.high}:Q"
    )
    points = base.mark_point(filled=True, size=60).encode(x=alt.X(f"{measure.value}:Q", title=measure.title))
    lines = len({row[group] for row in rows}) * (len({row[option] for row in rows}) + 1)
    chart = alt.layer(bars, points).properties(width="container", height=ROW_HEIGHT * lines, description=about)
    return chart.to_dict() | {"config": PAGE_COLOURS}


def break_even_chart(rows: Sequence[Row], about: str) -> dict[str, Any]:
    """Time over prefix length: a line per tier to load from, one to compute, a point from which on loading wins."""
    computed = {row["prefix_tokens"]: row["recompute_s"] for row in rows}
    values = [
        _point(f"load from {row['tier']}", row["prefix_tokens"], row["load_s"], row["is_crossing"]) for row in rows
    ]
    values += [_point(COMPUTE, tokens, time_s, False) for tokens, time_s in sorted(computed.items()) if time_s > 0]
    names = [COMPUTE, *dict.fromkeys(f"load from {row['tier']}" for row in rows)]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("prefix_tokens:Q", title="prefix, tokens", scale=alt.Scale(type="log")),
        y=alt.Y("time_s:Q", title=f"seconds, {about.rpartition(', ')[2]}", scale=alt.Scale(type="log")),
        color=alt.Color(
            "what:N", title=None, sort=names, scale=_colours(len(names)), legend=alt.Legend(orient="bottom")
        ),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("prefix_tokens:Q"), alt.Tooltip("time_s:Q")],
    )
    crossings = base.mark_point(filled=True, size=80).transform_filter("datum.is_crossing")
    chart = alt.layer(base.mark_line(), crossings).properties(width="container", height=CHART_HEIGHT, description=about)
    return chart.to_dict() | {"config": PAGE_COLOURS}


def _point(what: str, prefix_tokens: int, time_s: float, is_crossing: bool | None) -> Row:
    return {"what": what, "prefix_tokens": prefix_tokens, "time_s": time_s, "is_crossing": bool(is_crossing)}


def _in_order(rows: Sequence[Row], name: str) -> list[str]:
    """Values as the rows first name them: tiers by size."""
    return list(dict.fromkeys(str(row[name]) for row in rows))


def _colours(option_count: int) -> alt.Scale:
    return alt.Scale(range=COLOURS) if option_count <= len(COLOURS) else alt.Scale(scheme="tableau20")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
