"""Sources as conf/trace describes them, fed with lines from memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from pipeline.spec import build
from pipeline.trace.base import LoadedTrace, TraceSource

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "data"
PLENTY = 10**9


def source(option: str, **changes: Any) -> TraceSource:
    config = yaml.safe_load((ROOT / "conf" / "trace" / f"{option}.yaml").read_text())
    if "path" in config:
        config["path"] = "memory"
    return build(config | changes, "trace", TraceSource)


def load_lines(option: str, lines: list[bytes] | bytes, context: int = PLENTY, **changes: Any) -> LoadedTrace:
    given = lines.splitlines(keepends=True) if isinstance(lines, bytes) else lines

    def read(_: Path) -> Iterator[bytes]:
        return iter(given)

    return source(option, **changes).load(0, context, read)


def quality(table: pa.Table) -> dict[str, tuple[int, str]]:
    return {row["reason"]: (row["row_count"], row["first_rows"]) for row in table.to_pylist()}


def chains(loaded: LoadedTrace) -> list[list[int]]:
    trace = loaded.trace
    edges = trace.block_offset.tolist()
    return [trace.block_ids[a:b].tolist() for a, b in pairwise(edges)]


def check_trace(loaded: LoadedTrace) -> None:
    """What request_trace.py promises, and rows read = kept + dropped."""
    t, n = loaded.trace, loaded.trace.request_count
    assert n > 0
    for name in ("session_id", "class_id", "arrival_s", "think_s", "input_tokens", "output_tokens"):
        assert getattr(t, name).shape == (n,), name
    assert sorted(t.request_id.tolist()) == list(range(n))
    assert t.arrival_s[0] == 0
    assert (t.arrival_s[1:] >= t.arrival_s[:-1]).all()
    assert t.input_tokens.min() >= 1
    assert t.output_tokens.min() >= 1
    assert set(t.class_id.tolist()) <= set(range(len(t.classes)))
    assert t.block_offset.shape == (n + 1,)
    assert t.block_offset[0] == 0
    assert t.block_offset[-1] == t.block_ids.size
    listed = t.block_offset[1:] - t.block_offset[:-1]
    assert (listed <= (t.input_tokens + t.output_tokens) // t.block_tokens).all()
    assert set(t.block_ids.tolist()) == set(range(t.block_count))
    prefix_of: dict[int, int] = {}
    for chain in chains(loaded):
        for before, block in zip([-1, *chain], chain, strict=False):
            assert prefix_of.setdefault(block, before) == before, "a block has one prefix"
    counts = {row["reason"]: row["row_count"] for row in loaded.quality.to_pylist()}
    assert counts["kept"] == n
    assert counts["read"] == n + sum(c for reason, c in counts.items() if reason.startswith("dropped: "))
