"""The readers on the real files: counts known from elsewhere."""

from __future__ import annotations

import csv
import gzip
import json
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
    "claude_code_sessions": "traces/claude_code_sessions.jsonl.gz",
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


def test_claude_code_sessions(data: Path) -> None:
    loaded = _load(data, "claude_code_sessions")
    trace = loaded.trace
    requests = input_tokens = output_tokens = hit_tokens = failed = 0
    with gzip.open(data / FILES["claude_code_sessions"], "rt") as file:
        sessions = [json.loads(line) for line in file]
    for session in sessions:
        seen: set[int] = set()
        flat = [inner for entry in session["requests"] for inner in entry.get("requests", [entry])]
        for request in flat:
            if not request["out"]:
                failed += 1
                continue
            usable = request["hash_ids"][: (request["in"] - 1) // 64]
            hit_tokens += 64 * next((i for i, block in enumerate(usable) if block not in seen), len(usable))
            seen.update(request["hash_ids"])
            requests, input_tokens = requests + 1, input_tokens + request["in"]
            output_tokens += request["out"]
    assert (requests, failed, len(sessions)) == (6_597, 6, 120)
    assert (trace.request_count, np.unique(trace.session_id).size) == (6_597, 120)
    assert (trace.input_tokens.sum(), trace.output_tokens.sum()) == (input_tokens, output_tokens)
    assert infinite_cache_hit_ratio(trace) == pytest.approx(hit_tokens / input_tokens, rel=1e-12)
    # No id stands under two prefixes, no request is out of order: sub-agents work between their parents' requests.
    assert quality(loaded.quality) == {
        "read": (6_603, "[1, 2, 3, 4, 5]"),
        "kept": (6_597, "[1, 2, 3, 4, 5]"),
        "changed: think time cut (max_think_s)": (21, "[1, 40, 56, 58, 59]"),
        "dropped: no output (failed request)": (6, "[12, 23, 64, 81]"),
    }


def test_claude_code_times_add_up(data: Path) -> None:
    """Where think time is given, the time between arrivals is that and the service before it, rounded to a second."""
    with gzip.open(data / FILES["claude_code_sessions"], "rt") as file:
        sessions = [json.loads(line)["requests"] for line in file]
    off = []
    for entries in sessions:
        end_s = None
        for request in (entry for entry in entries if "requests" not in entry):
            if end_s is not None and "think_time" in request:
                off.append(abs(request["t"] - end_s - request["think_time"]))
            if "api_time" in request:
                end_s = request["t"] + request["api_time"]
    assert (len(off), sum(seconds > 1 for seconds in off)) == (6_419, 1)


def test_a_window_keeps_reuse_where_thinning_destroys_it(data: Path) -> None:
    window = _load(data, "mooncake_conversation", max_requests=3_000)
    assert window.trace.request_count == 3_000
    assert infinite_cache_hit_ratio(window.trace) > 0.25
    assert quality(window.quality)["dropped: behind the window (max_requests)"][0] == 9_031
