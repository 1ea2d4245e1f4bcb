"""The figures of the page, as Vega-Lite specifications with their data inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from pipeline.page import COLOURS, PAGE_COLOURS

Row = Mapping[str, Any]
ROW_HEIGHT = 16


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


def _in_order(rows: Sequence[Row], name: str) -> list[str]:
    """Values as the rows first name them: tiers by size."""
    return list(dict.fromkeys(str(row[name]) for row in rows))


def _colours(option_count: int) -> alt.Scale:
    return alt.Scale(range=COLOURS) if option_count <= len(COLOURS) else alt.Scale(scheme="tableau20")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
