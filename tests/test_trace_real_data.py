"""The readers on the real files: counts known from elsewhere."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from trace_sources import PLENTY, check_trace, quality, source

from pipeline.trace.base import LoadedTrace
from pipeline.trace.reuse import infinite_cache_hit_ratio

pytestmark = pytest.mark.data
FILES = {
    "mooncake_conversation": "traces/mooncake_conversation.jsonl.gz",
    "mooncake_synthetic": "traces/mooncake_synthetic.jsonl.gz",
    "azure_conversation": "traces/azure_llm_2023_conv.csv.gz",
}


def _load(data: Path, option: str, context: int = PLENTY, **changes: object) -> LoadedTrace:
    loaded = source(option, **{"path": str(data / FILES[option])} | changes).load(0, context)
    check_trace(loaded)
    return loaded


def test_mooncake_conversation(data: Path) -> None:
    exact = _load(data, "mooncake_conversation", spread_time_buckets=False).trace
    assert exact.request_count == 12_031
    assert (exact.output_tokens == 1).sum() == 72
    assert exact.input_tokens.max() == 126_195
    assert np.unique(exact.arrival_s).size == 1_180
    assert exact.arrival_s[-1] == 3536.999
    # 288,500 ids are listed; 12,009 of them are of a partial block.
    assert exact.block_ids.size == 288_500 - 12_009
    # With partial blocks counted as hits the ratio is 0.3736; only full blocks can be shared.
    assert infinite_cache_hit_ratio(exact) == pytest.approx(0.37338, abs=5e-6)
    loaded = _load(data, "mooncake_conversation")
    spread = source("mooncake_conversation", path=None).jittered(loaded.trace, 0)
    assert np.unique(spread.arrival_s).size == 12_031
    np.testing.assert_array_equal(spread.block_ids, exact.block_ids)
    assert spread.arrival_s[0] == 0
    assert np.abs(spread.arrival_s - exact.arrival_s).max() < 2 * 3.01
    assert quality(loaded.quality)["noted: one output token, so no time per output token"][0] == 72


def test_mooncake_synthetic(data: Path) -> None:
    loaded = _load(data, "mooncake_synthetic")
    assert loaded.trace.request_count == 3_993
    assert loaded.trace.input_tokens.max() == 191_378
    # 0.6512 with partial blocks counted as hits
    assert infinite_cache_hit_ratio(loaded.trace) == pytest.approx(0.65043, abs=5e-6)
    cut = _load(data, "mooncake_synthetic", 131_072)
    assert quality(cut.quality)["dropped: prompt and output longer than the model's context"][0] == 10


def test_azure_conversation(data: Path) -> None:
    trace = _load(data, "azure_conversation").trace
    assert trace.request_count == 19_366
    assert trace.input_tokens.max() == 14_050
    assert trace.arrival_s[1] == 4.314579  # 18:15:46.6805900 to 18:15:50.9951690
    with gzip.open(data / FILES["azure_conversation"], "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert trace.input_tokens.tolist() == [int(row["ContextTokens"]) for row in rows]
    assert trace.output_tokens.tolist() == [int(row["GeneratedTokens"]) for row in rows]


def test_a_window_keeps_reuse_where_thinning_destroys_it(data: Path) -> None:
    window = _load(data, "mooncake_conversation", max_requests=3_000)
    assert window.trace.request_count == 3_000
    assert infinite_cache_hit_ratio(window.trace) > 0.25
    assert quality(window.quality)["dropped: behind the window (max_requests)"][0] == 9_031
