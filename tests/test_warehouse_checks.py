from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from test_warehouse_factory import (
    ROOT,
    cell,
    leftovers,
    one_cell_study,
    published,
    quality,
    query,
    request,
    usage,
)

from pipeline.spec import InputError

IMPOSSIBLE = {
    "a window of a microsecond": {"measured_s": 1e-6, "offered_per_s": 1e6},
    "a window shorter than the fastest first token": {"measured_s": 0.049, "offered_per_s": 100.0},
    "another rate than that of its requests": {"arrived_per_s": 0.2},
    "no rate, though requests arrived": {"arrived_per_s": None},
    "more arrivals than any load of that rate brings": {"offered_per_s": 0.02},
    "no load": {"offered_per_s": 0.0, "measured_s": 0.0},
    "a load without end": {"offered_per_s": math.inf},
    "a window without end": {"measured_s": math.inf, "arrived_per_s": None},
    "a negative makespan": {"makespan_s": -1.0},
    "more hits than lookups": {"infinite_cache_hit_ratio": 1.1},
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_figures_are_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(InputError, match=r"check_cell_figures: 1 row.*cell_id=c"):
        published(tmp_path, {"cells": [cell("c", **IMPOSSIBLE[case])], "requests": [request("c", 0)]})


def test_a_window_just_longer_than_the_fastest_first_token_is_judged(tmp_path: Path) -> None:
    row = cell("c", measured_s=0.05, offered_per_s=5.0)
    warehouse = published(tmp_path, {"cells": [row], "requests": [request("c", 0)]})
    assert query(warehouse, "select goodput_per_s from cell_metrics") == [(20.0,)]


BROKEN = {
    "check_request_tokens": {"requests": [request("c", 0), request("c", 1, recomputed_tokens=99)]},
    "check_request_tier": {"requests": [request("c", 0, served_tier="ssd")]},
    "check_request_status": {"requests": [request("c", 0, status="lost")]},
    "check_request_latencies": {"requests": [request("c", 0, e2el_ms=49.0)]},
    "check_request_ids": {"requests": [request("c", 0), request("c", 0)]},
    "check_cell_requests": {"requests": []},
    "check_cell_ids": {"cells": [cell("c"), cell("c")]},
    "check_cell_designs": {"cells": [cell("c"), cell("d")], "requests": [request("c", 0), request("d", 0)]},
    "check_cell_axes": {"cells": [cell("c", axes="[1]")]},
    "check_cell_figures": {"cells": [cell("c", extrapolated_time_ratio=1.5)]},
    "check_known_cells": {"tier_usage": [usage("elsewhere", "hbm", 1.0)]},
    "check_tier_capacity": {"tier_usage": [usage("c", "hbm", 1e9, peak_used_bytes=1.1e9)]},
    "check_trace_rows": {
        "trace_quality": [quality("t", "read", 3), quality("t", "kept", 1), quality("t", "dropped: x", 1)]
    },
    "check_transfer_bytes": {
        "transfers": [
            {"cell_id": "c", "instance_id": 0, "source_tier": "dram", "target_tier": "hbm", "cause": cause,
             "block_count": 2, "transferred_bytes": moved, "busy_s": 0.1, "wait_s": 0.0}
            for cause, moved in (("onboard", 64.0), ("demote", 63.0))
        ]
    },
}  # fmt: skip


def test_every_check_is_broken_below() -> None:
    folder = ROOT / "src/pipeline/warehouse/sql"
    assert {path.stem for path in folder.glob("check_*.sql")} == set(BROKEN)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("old"), one_cell_study(), study="other")


@pytest.mark.parametrize("check", BROKEN)
def test_a_failed_check_names_itself_and_leaves_the_old_file(tmp_path: Path, old: Path, check: str) -> None:
    warehouse = Path(shutil.copy(old, tmp_path))
    before = warehouse.read_bytes()
    good = {"cells": [cell("c")], "requests": [request("c", 0)]}
    with pytest.raises(InputError, match=rf"{check}: \d row.*study=default"):
        published(tmp_path, good | BROKEN[check])
    assert warehouse.read_bytes() == before
    assert leftovers(tmp_path) == ["warehouse.duckdb"]


def test_a_correct_ledger_and_equal_blocks_pass(tmp_path: Path) -> None:
    transfer = BROKEN["check_transfer_bytes"]["transfers"][0]
    ledger = [
        quality("t", "read", 3),
        quality("t", "kept", 2),
        quality("t", "dropped: x", 1),
        quality("t", "noted: y", 1),
    ]
    more = {"transfers": [transfer, transfer | {"cause": "kv_handoff"}], "trace_quality": ledger}
    warehouse = published(tmp_path, one_cell_study() | more)
    assert query(warehouse, "select read_rows, kept_rows, other_rows, is_real from trace_summary") == [
        (3, 2, '{"dropped: x":1,"noted: y":1}', True)
    ]
