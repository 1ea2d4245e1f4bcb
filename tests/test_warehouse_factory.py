"""Small hand-worked studies for the warehouse tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import yaml

from pipeline import tables
from pipeline.schema import TABLES
from pipeline.spec import build
from pipeline.values import Price, Slo
from pipeline.warehouse.build import publish
from pipeline.warehouse.claims import Claims
from pipeline.warehouse.report import write_report
from pipeline.warehouse.reporting import Reporting

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
Rows = Sequence[Mapping[str, Any]]


def from_conf(option: str, kind: type[Any]) -> Any:
    return build(yaml.safe_load((CONF / f"{option}.yaml").read_text()), option, kind)


def reporting(**changes: Any) -> Reporting:
    prices = tuple(from_conf(f"price/{path.stem}", Price) for path in sorted((CONF / "price").glob("*.yaml")))
    values = {
        "slo": Slo(name="test", ttft_ms=100.0, tpot_ms=10.0),
        "price": next(price for price in prices if price.name == "street_2026"),
        "prices": prices,
        "claims": from_conf("claims/papers", Claims),
    }
    return Reporting(**(values | changes))


def cell(cell_id: str, **changes: Any) -> dict[str, Any]:
    row = {
        "cell_id": cell_id, "stage": "place", "study": "whatever", "model": "m8b", "hardware": "h100_sxm",
        "predictor": "forest", "engine": "vllm", "trace": "chat", "tiers": "small", "eviction": "lru",
        "placement": "tiered", "prefetch": "none",
        "routing": "round_robin", "cluster": "single", "slo": "tight", "seed": 0, "axes": "{}",
        "code_digest": "0", "config": json.dumps({"engine": {"tensor_parallel": 2}}),
        "calibration_source": "silicon_interpolated", "is_calibrated": True, "capacity_per_s": 4.0,
        "offered_per_s": 10.0, "measured_s": 10.0, "is_settled": True, "makespan_s": 12.0,
        "tau_prefill_s_per_token": 1e-4, "tau_decode_s_per_token": 1e-2,
        "mean_running_count": 3.0, "p90_running_count": 5.0,
        "extrapolated_time_ratio": 0.1, "zero_reuse_hit_ratio": 0.0, "infinite_cache_hit_ratio": 0.6,
        "has_prefixes": True,
    }  # fmt: skip
    return row | changes


def request(cell_id: str, request_id: int, **changes: Any) -> dict[str, Any]:
    row = {
        "cell_id": cell_id, "request_id": request_id, "session_id": request_id, "class": "chat",
        "prefill_instance_id": 0, "decode_instance_id": 0, "arrival_s": float(request_id), "input_tokens": 100,
        "output_tokens": 11, "hbm_tokens": 0, "dram_tokens": 0, "ssd_tokens": 0, "remote_tokens": 0,
        "recomputed_tokens": 100, "served_tier": "recompute", "queue_ms": 1.0, "onboard_ms": 0.0, "handoff_ms": None,
        "ttft_ms": 50.0, "tpot_ms": 5.0, "max_itl_ms": 8.0, "e2el_ms": 100.0, "preemption_count": 0,
        "status": "completed", "is_measured": True,
    }  # fmt: skip
    return row | changes


def rejected(cell_id: str, request_id: int, reason: str = "prompt_too_long") -> dict[str, Any]:
    none = dict.fromkeys(("queue_ms", "onboard_ms", "ttft_ms", "tpot_ms", "max_itl_ms", "e2el_ms"))
    return request(cell_id, request_id, status=f"rejected:{reason}", recomputed_tokens=0, **none)


def late(cell_id: str, request_id: int) -> dict[str, Any]:
    return request(cell_id, request_id, ttft_ms=101.0, e2el_ms=151.0)


def usage(cell_id: str, tier: str, capacity_bytes: float, instance_id: int = 0, **changes: Any) -> dict[str, Any]:
    row = {
        "cell_id": cell_id, "instance_id": instance_id, "tier": tier, "capacity_bytes": capacity_bytes,
        "lookup_tokens": 10, "hit_tokens": 5, "evicted_blocks": 0, "dropped_blocks": 0,
        "mean_used_bytes": capacity_bytes / 2, "peak_used_bytes": capacity_bytes,
    }  # fmt: skip
    return row | changes


def decision(cell_id: str, request_id: int, role: str, instance_id: int) -> dict[str, Any]:
    return {
        "cell_id": cell_id, "request_id": request_id, "role": role, "instance_id": instance_id,
        "chosen_match_tokens": 0, "best_match_tokens": 0, "estimated_backlog_s": 0.0, "snapshot_age_ms": 50.0,
    }  # fmt: skip


def quality(trace: str, reason: str, row_count: int, path: str = "trace.jsonl", seed: int = 0) -> dict[str, Any]:
    return {"trace": trace, "path": path, "seed": seed, "reason": reason, "row_count": row_count, "first_rows": "[]"}


def break_even(tier: str, prefix_tokens: int, load_s: float, recompute_s: float, **changes: Any) -> dict[str, Any]:
    row = {
        "setup_id": "s", "hardware": "h100_sxm", "model": "m8b", "predictor": "forest", "engine": "vllm",
        "tensor_parallel": 1, "max_batched_tokens": 8192, "block_tokens": 16, "tier": tier, "sharer_count": 1,
        "running_count": 0, "prefix_tokens": prefix_tokens, "load_s": load_s, "recompute_s": recompute_s,
        "bandwidth_bytes_per_s": 7e9, "break_even_bytes_per_s": 7e9 * load_s / recompute_s, "is_extrapolated": False,
        "load_from_tokens": None, "load_to_tokens": None,
    }  # fmt: skip
    return row | changes


def with_met(row: Mapping[str, Any], met_count: int, request_count: int = 100) -> tuple[Any, list[dict[str, Any]]]:
    """A cell and its requests, `met_count` of which meet the SLO of `reporting()`; goodput is a tenth of that."""
    one = [request if i < met_count else late for i in range(request_count)]
    return row, [make(row["cell_id"], i) for i, make in enumerate(one)]


def study_of(*parts: tuple[Any, list[dict[str, Any]]], **more: Rows) -> dict[str, Rows]:
    return {"cells": [c for c, _ in parts], "requests": [r for _, rows in parts for r in rows]} | more


def arrivals(row: Mapping[str, Any], requests: Rows) -> dict[str, Any]:
    """The rate at which the requests of a cell arrived in its window, unless it says one itself."""
    count = sum(r["cell_id"] == row["cell_id"] and r["is_measured"] for r in requests)
    return {"arrived_per_s": count / row["measured_s"] if row["measured_s"] > 0 else None, **row}


def write(folder: Path, rows: Mapping[str, Rows]) -> dict[str, list[Path]]:
    if "cells" in rows:
        rows = {**rows, "cells": [arrivals(row, rows.get("requests", [])) for row in rows["cells"]]}
    return {name: [tables.write(folder, TABLES[name], tables.from_rows(TABLES[name], r))] for name, r in rows.items()}


def published(folder: Path, rows: Mapping[str, Rows], study: str = "default", **changes: Any) -> Path:
    warehouse = folder / "warehouse.duckdb"
    publish(warehouse, study, write(folder / "parquet" / study, rows), reporting(**changes))
    return warehouse


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "parquet")


def one_cell_study(cell_id: str = "c", met: int = 60, **changes: object) -> dict[str, list[dict[str, object]]]:
    return study_of(with_met(cell(cell_id, **changes), met), tier_usage=[usage(cell_id, "hbm", 40e9)])


def page_of(folder: Path, warehouse: Path, study: str = "default") -> str:
    write_report(warehouse, study, folder / "report.html")
    return (folder / "report.html").read_text()


def query(warehouse: Path, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(warehouse), read_only=True) as con:
        return con.execute(text, values).fetchall()


def two_stage_study() -> dict[str, Rows]:
    """Two tier sizes x (lru, lfu) and two routers, three seeds: lfu equals lru, cost_model beats round_robin."""
    parts, capacity, decisions = [], [], []
    pools = {"cluster": {"pools": [{"role": "prefill", "count": 1}, {"role": "decode", "count": 2}]}}
    for seed in range(3):
        for tiers, met in (("small", 60), ("large", 90)):
            for eviction in ("lru", "lfu"):
                cell_id = f"p{seed}{tiers}{eviction}"
                axes = json.dumps({"tiers": tiers, "eviction": eviction, "seed": seed})
                parts.append(with_met(cell(cell_id, tiers=tiers, eviction=eviction, seed=seed, axes=axes), met + seed))
                capacity += [usage(cell_id, "hbm", 40e9), usage(cell_id, "dram", 100e9 if tiers == "large" else 0.0)]
        for routing, met in (("round_robin", 50), ("cost_model", 80)):
            cell_id = f"r{seed}{routing}"
            row = cell(
                cell_id, stage="route", routing=routing, seed=seed, cluster="one_two", config=json.dumps(pools),
                axes=json.dumps({"routing": routing, "seed": seed}),
            )  # fmt: skip
            parts.append(with_met(row, met + seed))
            decisions += [decision(cell_id, i, "decode", 1 + i % 2) for i in range(4)]
            capacity += [usage(cell_id, "hbm", 40e9, i) for i in range(3)]
    trace = [quality("chat", "kept", 100, "generated")]
    return study_of(*parts, tier_usage=capacity, routing_decisions=decisions, trace_quality=trace)


def test_the_factory_writes_tables_that_can_be_read(tmp_path: Path) -> None:
    paths = write(tmp_path, two_stage_study())
    assert tables.read(paths["cells"][0]).num_rows == 18
