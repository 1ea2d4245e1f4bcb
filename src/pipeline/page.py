"""HTML of the page: one file, no request leaves it, every value escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

import vl_convert

# Nothing may be fetched, whatever the page holds; Vega compiles its expressions, hence unsafe-eval.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:"
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f3f5f7; --line: #d5dae0; --loud: #a3250d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e7ec; --paper: #14171a; --soft: #1f2429; --line: #39414a; --loud: #ff9a82; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
.loud { color: var(--loud); font-weight: 600; } .note { font-size: .875rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.chart { width: 100%; min-width: 0; }
.scroll { overflow-x: auto; } summary { cursor: pointer; padding: .3rem 0; }
table { border-collapse: collapse; font-size: .8125rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left; vertical-align: top;
  overflow-wrap: normal; }
th { background: var(--soft); } td.number { text-align: right; font-variant-numeric: tabular-nums; }
"""
# Okabe and Ito's colours, which stay apart on light and dark and for colour-blind readers.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999999"]

# Text and lines take the colour of the page, light or dark.
_INK = {"labelColor": "currentColor", "titleColor": "currentColor"}
PAGE_COLOURS = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": _INK | {f"{part}Color": "currentColor" for part in ("domain", "tick", "grid")} | {"gridOpacity": 0.15},
    "legend": _INK,
}
DRAW = """
const charts = JSON.parse(document.getElementById('charts').textContent);
for (const [i, spec] of charts.entries())
  vegaEmbed('#chart-' + i, spec, {renderer: 'svg', actions: false}).catch(error => {
    document.getElementById('chart-' + i).textContent = 'This figure could not be drawn: ' + error;
  });
"""


class Page:
    """A page that is put together from top to bottom."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.charts: list[Mapping[str, Any]] = []

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self.parts.append(f"<h{level}>{escape(text)}</h{level}>")

    def paragraph(self, text: str, kind: str = "") -> None:
        """Add a paragraph; `kind` is a class of the style sheet."""
        self.parts.append(f'<p class="{kind}">{escape(text)}</p>')

    def items(self, texts: Sequence[str]) -> None:
        """Add a list."""
        self.parts.append("<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>")

    def figure(self, charts: Sequence[Mapping[str, Any]]) -> None:
        """Add charts side by side, below one another on a narrow screen."""
        slots = []
        for spec in charts:
            about = escape(str(spec.get("description", "")))
            slots.append(f'<div class="chart" id="chart-{len(self.charts)}" role="img" aria-label="{about}"></div>')
            self.charts.append(spec)
        self.parts.append(f'<div class="charts">{"".join(slots)}</div>')

    def table(self, caption: str, rows: Sequence[Mapping[str, Any]], is_open: bool = False) -> None:
        """Add a table of `rows` under a line that opens and closes it; says so where there are none."""
        if not rows:
            self.paragraph(f"{caption}: none.", "note")
            return
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0])
        body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows)
        self.parts.append(
            f"<details{' open' if is_open else ''}><summary>{escape(caption)} ({len(rows)})</summary>"
            f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
            "</details>"
        )

    def html(self) -> str:
        """The whole page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head>\n<body><main>\n<h1>{escape(self.title)}</h1>\n"
            + "\n".join(self.parts)
            + f"\n</main>{self._scripts()}</body></html>\n"
        )

    def _scripts(self) -> str:
        if not self.charts:
            return ""
        data = json.dumps(self.charts, allow_nan=False).replace("<", "\\u003c")
        return f'<script type="application/json" id="charts">{data}</script>\n<script type="module">{_code()}</script>'


@cache
def _code() -> str:
    """Vega, Vega-Lite, Vega-Embed and the lines that draw, bundled once (a second, 0.9 MB)."""
    return vl_convert.javascript_bundle(DRAW)


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, (int, float)):
        text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        return f'<td class="number">{escape(text)}</td>'
    return f"<td>{escape(str(value))}</td>"
