"""Reuse distances against an LRU that is played step by step, and against published hit ratios."""

from __future__ import annotations

import csv
import gzip
import json
from collections import OrderedDict
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.reuse import hit_ratio_curve, reuse_distances

FILES = {"conversation": "mooncake_conversation.jsonl.gz", "synthetic": "mooncake_synthetic.jsonl.gz"}


def trace_of(chains: list[list[int]], output_blocks: list[int] | None = None) -> RequestTrace:
    """Requests of blocks of 4 tokens; the last output_blocks of each chain are completed by its output."""
    n = len(chains)
    listed = np.array([len(c) for c in chains], np.int64)
    behind = np.array(output_blocks or [0] * n, np.int64)
    return RequestTrace(
        name="by hand",
        block_tokens=4,
        classes=("a",),
        request_id=np.arange(n),
        session_id=np.arange(n),
        class_id=np.zeros(n, np.int64),
        arrival_s=np.arange(n, dtype=np.float64),
        think_s=np.full(n, np.nan),
        input_tokens=(listed - behind) * 4 + 3,
        output_tokens=behind * 4 + 1,
        block_offset=np.concatenate([[0], np.cumsum(listed)]),
        block_ids=np.array([*chain.from_iterable(chains)], np.int64),
        has_prefixes=True,
    )


def lru_hits(accesses: list[int], capacity: int) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in accesses:
        if block in held:
            hits += 1
            held.move_to_end(block)
        elif capacity:
            if len(held) == capacity:
                held.popitem(last=False)
            held[block] = None
    return hits


def test_distances_by_hand() -> None:
    # 0 1 2 | 0 1: two others since each | 2: 0 and 1 since | 2 again: none since
    assert reuse_distances(trace_of([[0, 1, 2], [0, 1], [2], [2]])).tolist() == [-1, -1, -1, 2, 2, 2, 0]


def test_blocks_of_an_output_are_no_access() -> None:
    # Block 1 and 2 of the first request are its answer's: the second looks 1 up for the first time.
    assert reuse_distances(trace_of([[0, 1, 2], [0, 1]], [2, 0])).tolist() == [-1, 0, -1]


def test_a_trace_without_prefixes_has_no_distances_and_hits_nothing() -> None:
    distances = reuse_distances(trace_of([[], []]))
    assert distances.size == 0
    assert hit_ratio_curve(distances, np.array([0, 5])).tolist() == [0, 0]


@given(st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=30))
@settings(max_examples=200, deadline=None)
def test_an_lru_of_any_capacity_hits_what_the_distances_say(chains: list[list[int]]) -> None:
    accesses = [*chain.from_iterable(chains)]
    capacities = np.arange(15)
    curve = hit_ratio_curve(reuse_distances(trace_of(chains)), capacities)
    expected = [lru_hits(accesses, capacity) / max(len(accesses), 1) for capacity in capacities.tolist()]
    np.testing.assert_allclose(curve, expected, rtol=0, atol=1e-12)


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_lru_hits_what_libcachesim_counts(data: Path, name: str) -> None:
    """Each listed id is one access, those of partial blocks included."""
    with gzip.open(data / "traces" / FILES[name], "rt") as file:
        distances = reuse_distances(trace_of([json.loads(line)["hash_ids"] for line in file]))
    with (data / "reference" / "reference_hit_ratios.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["trace"], row["policy"]) == (name, "LRU")]
    assert len(rows) == 5
    unique = (distances < 0).sum()
    assert [int(float(row["cache_fraction"]) * unique) for row in rows] == [int(row["cache_blocks"]) for row in rows]
    curve = hit_ratio_curve(distances, np.array([int(row["cache_blocks"]) for row in rows]))
    np.testing.assert_allclose(1 - curve, [float(row["miss_ratio"]) for row in rows], rtol=0, atol=5.1e-7)
