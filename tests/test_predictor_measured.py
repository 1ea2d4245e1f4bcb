"""On kernels measured inside a real serving engine: from a file of samples to a look-up whose error is stated."""

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import pytest
from hardware_options import model_of, predictor_of, values_of

from pipeline.hardware.base import calibrate
from pipeline.hardware.spec import Hardware
from pipeline.schema import STEP_SAMPLES
from pipeline.spec import build
from pipeline.tables import arrow_schema
from pipeline.values import EngineLimits

LAYERS = 32
PER_LAYER = {"layernorm": 2 * LAYERS, "embedding": 1, "final_layernorm": 1}
ENGINE = EngineLimits(tensor_parallel=1, max_running=128, max_batched_tokens=2048)


def rows_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def write_samples(folder: Path, target: Path) -> None:
    """Bring the profile of an engine into the columns of step_samples: whole model, seconds, one rank."""
    samples: list[tuple[str, int, int, int, float, float]] = []
    for operation, file, count in (("dense", "dense", "tokens"), ("logits", "per_sequence", "sequences")):
        time_s: dict[int, float] = defaultdict(float)
        for row in rows_of(folder / f"{file}.csv.gz"):
            times = PER_LAYER.get(row["layer"], LAYERS) if operation == "dense" else 1
            time_s[int(row[count])] += times * float(row["time_us"]) * 1e-6
        for n, seconds in time_s.items():
            samples.append(
                (operation, n if operation == "dense" else 0, 0, n if operation == "logits" else 0, 0, seconds)
            )
    for row in rows_of(folder / "attention.csv.gz"):
        q, k, d, c = (int(row[name]) for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"))
        if (q > 0) != (d > 0):
            operation = "attention_prefill" if q else "attention_decode"
            samples.append((operation, q, k, d, c, float(row["time_us"]) * 1e-6 * LAYERS))
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name for name in arrow_schema(STEP_SAMPLES).names if name != "source"])
        writer.writerows(["measured_samples", "llama3_1_8b", 1, o, q, k, d, c, c, t, 3] for o, q, k, d, c, t in samples)


@pytest.mark.data
@pytest.mark.parametrize(
    ("case", "predictor", "most"),
    [
        ("rtxpro6000_llama31_8b", "random_forest", 0.05),
        ("rtxpro6000_llama31_8b", "extra_trees", 0.04),
        ("rtx4090_llama31_8b", "random_forest", 0.06),
    ],
)
def test_measured_kernels(data: Path, tmp_path: Path, case: str, predictor: str, most: float) -> None:
    write_samples(data / "fidelity" / case, tmp_path / "samples.csv")
    values = values_of("hardware", "measured_samples")
    values["source"]["path"] = str(tmp_path / "samples.csv")
    found = calibrate(build(values, "hardware", Hardware), model_of("llama3_1_8b"), ENGINE)
    trained = predictor_of(predictor).train(found.step_samples, model_of("llama3_1_8b"), ENGINE, 0)
    errors = {row["operation"]: row["mape_ratio"] for row in trained.accuracy.to_pylist() if row["split"] == "held_out"}
    assert set(errors) == {"dense", "logits", "attention_prefill", "attention_decode"}
    assert max(errors.values()) < most, errors
    assert set(trained.accuracy["against"].to_pylist()) == {"measured", "the fit it tabulates"}
