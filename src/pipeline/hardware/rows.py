"""The three tables of a calibration, built from points, times and a `Hardware`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.hardware.grid import Points
from pipeline.hardware.roofline import StepTimes
from pipeline.hardware.spec import Hardware, Link
from pipeline.model import Model
from pipeline.schema import CONSTANTS, LINK_CALIBRATION, STEP_SAMPLES
from pipeline.spec import Sourced
from pipeline.tables import from_columns, from_rows
from pipeline.values import EngineLimits


def kv_tokens(hardware: Hardware, model: Model, engine: EngineLimits) -> int:
    """Tokens whose KV fits beside the weights of every rank: no step can hold more."""
    ranks = engine.tensor_parallel
    return int(hardware.free_hbm_bytes(model, ranks) / model.kv_rank_bytes_per_token(ranks))


def step_samples(
    hardware: Hardware, model: Model, engine: EngineLimits, points: Points, times: StepTimes, source: str
) -> pa.Table:
    """Table step_samples of computed times: no measurement was made here, so repeat_count is 0.

    A row of dense or collective stands for prefill_tokens scheduled tokens, one of logits for decode_requests
    sequences.
    """
    zeros = np.zeros_like
    parts = {  # prefill tokens, cached tokens, decodes, mean context
        "dense": (points.tokens, zeros(points.tokens), zeros(points.tokens), zeros(points.tokens)),
        "logits": (zeros(points.sequences), zeros(points.sequences), points.sequences, zeros(points.sequences)),
        "collective": (points.tokens, zeros(points.tokens), zeros(points.tokens), zeros(points.tokens)),
        "attention_prefill": (
            points.prefill_new, points.prefill_cached, zeros(points.prefill_new), zeros(points.prefill_new),
        ),
        "attention_decode": (
            zeros(points.decode_requests), zeros(points.decode_requests), points.decode_requests, points.decode_context,
        ),
    }  # fmt: skip
    seconds = times._asdict()
    chosen = {name: columns for name, columns in parts.items() if seconds[name].size}
    stacked = [np.concatenate([columns[i] for columns in chosen.values()]) for i in range(4)]
    return from_columns(
        STEP_SAMPLES,
        {
            "hardware": hardware.name,
            "model": model.name,
            "tensor_parallel": engine.tensor_parallel,
            "source": source,
            "operation": np.repeat(list(chosen), [columns[0].size for columns in chosen.values()]).tolist(),
            "prefill_tokens": stacked[0],
            "prefill_cached_tokens": stacked[1],
            "decode_requests": stacked[2],
            "decode_context_mean_tokens": stacked[3].astype(np.float64),
            "decode_context_max_tokens": stacked[3].astype(np.float64),
            "time_s": np.concatenate([seconds[name] for name in chosen]),
            "repeat_count": 0,
        },
    )


def constant(name: str, unit: str, value: Sourced, fit_error_ratio: float | None = None) -> dict[str, object]:
    """One constant, before hardware and model are known."""
    return {
        "name": name,
        "value": float(value.value),
        "unit": unit,
        "source": value.source,
        "as_of": value.as_of,
        "fit_error_ratio": fit_error_ratio,
    }


def constants(hardware: Hardware, model: Model, engine: EngineLimits, more: list[dict[str, object]]) -> pa.Table:
    """Table constants: peak figures, what follows from the model's shape, and `more` from the source."""
    shape = {"source": model.source, "as_of": model.as_of}
    rank_kv_bytes = model.kv_rank_bytes_per_token(engine.tensor_parallel)
    rows = [
        constant("bf16_flops_per_s", "flops_per_s", hardware.bf16_flops_per_s),
        constant("hbm_bytes", "bytes", hardware.hbm_bytes),
        constant("hbm_bytes_per_s", "bytes_per_s", hardware.hbm_bytes_per_s),
        constant("power_watts", "watts", hardware.power_watts),
        constant("weight_bytes", "bytes", Sourced(value=model.weight_bytes, **shape)),
        constant("kv_bytes_per_token", "bytes_per_token", Sourced(value=model.kv_bytes_per_token, **shape)),
        constant("kv_rank_bytes_per_token", "bytes_per_token", Sourced(value=rank_kv_bytes, **shape)),
        *more,
    ]
    who = {"hardware": hardware.name, "model": model.name, "tensor_parallel": engine.tensor_parallel}
    return from_rows(CONSTANTS, [{**who, **row} for row in rows])


def link_row(
    hardware: str, tiers: tuple[str, str], link: Link, fit_error_ratio: float | None = None
) -> dict[str, object]:
    """One row of table link_calibration."""
    return {
        "hardware": hardware,
        "source_tier": tiers[0],
        "target_tier": tiers[1],
        "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s.value,
        "latency_s": link.latency_s.value,
        "descriptor_s": link.descriptor_s.value,
        "fit_error_ratio": fit_error_ratio,
        "source": f"{link.kind}: {link.bandwidth_bytes_per_s.source}",
        "as_of": link.bandwidth_bytes_per_s.as_of,
    }


def links(hardware: Hardware) -> pa.Table:
    """Table link_calibration of the links as the configuration states them."""
    pairs = {
        ("hbm", "dram"): hardware.dram_link,
        ("dram", "hbm"): hardware.dram_link,
        ("dram", "ssd"): hardware.ssd_write_link,
        ("ssd", "dram"): hardware.ssd_read_link,
        ("hbm", "hbm"): hardware.handoff_link,
        ("dram", "remote"): hardware.links["remote_link"],
        ("remote", "dram"): hardware.links["remote_link"],
    }
    return from_rows(LINK_CALIBRATION, [link_row(hardware.name, tiers, link) for tiers, link in pairs.items()])


def read_samples(samples: pa.Table) -> tuple[Points, StepTimes]:
    """Give back the points and times of a table that `step_samples` made."""

    def column(operation: str, name: str) -> NDArray[Any]:
        chosen = samples.filter(pc.equal(samples["operation"], operation))
        return np.asarray(chosen[name].to_numpy())

    points = Points(
        tokens=column("dense", "prefill_tokens"),
        sequences=column("logits", "decode_requests"),
        prefill_new=column("attention_prefill", "prefill_tokens"),
        prefill_cached=column("attention_prefill", "prefill_cached_tokens"),
        decode_requests=column("attention_decode", "decode_requests"),
        decode_context=column("attention_decode", "decode_context_mean_tokens").astype(np.int64),
    )
    return points, StepTimes(*(column(name, "time_s") for name in StepTimes._fields))
