"""Predictors beside each other: on what was held out, and on the runs that were replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_warehouse_factory import page_of, published, query

from pipeline.warehouse.summary import summarise


def known(predictor: str, operation: str, mape_ratio: float, **changes: Any) -> dict[str, Any]:
    row = {
        "case": "gpu_8b", "hardware": "GPU", "model": "8B", "tensor_parallel": 1, "predictor": predictor,
        "operation": operation, "split": "held_out", "sample_count": 10, "mape_ratio": mape_ratio,
        "p95_error_ratio": 2 * mape_ratio, "against": "measured",
    }  # fmt: skip
    return row | changes


def replayed(predictor: str, metric: str, error_ratio: float, case: str = "gpu_8b", peer: float | None = 0.05) -> Any:
    return {
        "case": case, "predictor": predictor, "source": "them", "metric": metric, "measured": 100.0,
        "simulated": 100.0 * (1 + error_ratio), "error_ratio": error_ratio, "peer_error_ratio": peer,
    }  # fmt: skip


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    accuracy = [
        known("forest", "dense", 0.02), known("forest", "attention_mixed", 0.04),
        known("forest", "dense", 0.0, split="train"), known("plain", "dense", 0.3),
        known("forest", "dense", 0.5, case=None, hardware="h100"),
    ]  # fmt: skip
    fidelity = [
        replayed("plain", "TTFT mean", 0.02), replayed("plain", "E2E mean", -0.01),
        replayed("forest", "TTFT mean", -0.03), replayed("forest", "E2E mean", 0.01, peer=-0.01),
        replayed("plain", "TTFT mean", 0.5, "gpu_70b", None),
    ]  # fmt: skip
    return published(tmp_path_factory.mktemp("w"), {"predictor_accuracy": accuracy, "fidelity": fidelity})


def test_one_row_is_a_run_or_hardware_with_one_predictor(warehouse: Path) -> None:
    columns = "held_out_mape_ratio, held_out_dense_ratio, held_out_mixed_ratio, held_out_decode_ratio"
    rows = query(warehouse, f'select "case", hardware, predictor, {columns} from predictor_comparison order by all')
    assert rows == [
        ("gpu_70b", None, "plain", None, None, None, None),
        ("gpu_8b", "GPU", "forest", pytest.approx(0.03), 0.02, 0.04, None),
        ("gpu_8b", "GPU", "plain", 0.3, 0.3, None, None),
        (None, "h100", "forest", 0.5, 0.5, None, None),
    ]
    columns = "metric_count, mean_absolute_error_ratio, worst_metric, worst_error_ratio, peer_mean_absolute_error_ratio"
    query_text = f"select predictor, {columns} from predictor_comparison where \"case\" = 'gpu_8b' order by all"
    assert query(warehouse, query_text) == [
        ("forest", 2, pytest.approx(0.02), "TTFT mean", -0.03, pytest.approx(0.03)),
        ("plain", 2, pytest.approx(0.015), "TTFT mean", 0.02, pytest.approx(0.05)),
    ]


def test_kernels_of_a_run_are_no_samples_of_hardware(warehouse: Path) -> None:
    rows = query(
        warehouse, 'select "case", hardware, operation, held_out_mape_ratio from predictor_summary order by all'
    )
    assert len(rows) == 4
    assert (None, "h100", "dense", 0.5) in rows


def test_the_summary_names_the_predictors_where_there_are_several(tmp_path: Path, warehouse: Path) -> None:
    text = " ".join(summarise(warehouse, "default").plain.split())
    several = (
        "mean absolute error over 2 metrics by predictor: plain 1.50 %, forest 2.00 % (the best peer: 5.00 %); "
        "worst of plain TTFT mean, 2.00 %"
    )
    assert text == (
        "Study default: 2 real runs replayed "
        "- gpu_70b: mean absolute error 50.00 % over 1 metric; worst TTFT mean, 50.00 % "
        f"- gpu_8b: {several}."
    ).replace("50.00 % - gpu_8b", "50.00 %. - gpu_8b")
    page = page_of(tmp_path, warehouse)
    assert f"<li>gpu_8b: {several}</li>" in page
    assert (
        "<summary>Predictors on the runs that were replayed: errors on kernels held out, and of the replay (3)" in page
    )
    assert "<summary>Error of the predicted step times (1)" in page
