"""Whole measured steps taken apart: each operation is its roofline times a factor fitted to the steps.

time = fixed + f_dense (dense + logits) + f_prefill prefill attention + f_decode decode attention + f_collective
collectives, all factors >= 0, by least squares on the relative error. What a roofline cannot shape (tile stairs,
kernels that change with length) stays in the error, which is returned.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.hardware.fit import Floats, fit_relative
from pipeline.hardware.grid import sample_points
from pipeline.hardware.roofline import StepTimes, collective_s, decode_s, dense_s, logits_s, prefill_s, roofline
from pipeline.hardware.rows import kv_tokens, step_samples
from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.spec import InputError
from pipeline.values import EngineLimits

LABEL = "measured"
STEPS_PER_FACTOR = 4


def decompose(
    steps: pa.Table, hardware: Hardware, model: Model, engine: EngineLimits, where: str
) -> tuple[pa.Table, float]:
    """Fit the factors to `steps` (rows of operation step) and give samples of every operation, and the fit's error.

    Raises InputError, saying which steps are needed, when the steps cannot tell the operations apart.
    """
    time_s = steps["time_s"].to_numpy()
    features = _features(steps, hardware, model, engine)
    names = list(features)
    matrix = np.stack(list(features.values()), axis=1)
    _check_identified(names, matrix / time_s[:, None], where)
    factors, error = fit_relative(matrix, time_s)
    for name, factor in zip(names[1:], factors[1:], strict=True):
        if factor == 0:
            raise InputError(
                f"{where}: the steps do not show the cost of {name}; add steps in which it is most of the time"
            )
    by_name = dict(zip(names, factors.tolist(), strict=True))
    most_tokens = int((steps["prefill_tokens"].to_numpy() + steps["decode_requests"].to_numpy()).max())
    longest = int((steps["prefill_tokens"].to_numpy() + steps["prefill_cached_tokens"].to_numpy()).max())
    tokens = kv_tokens(hardware, model, engine)
    points = sample_points(model, engine, tokens, most_tokens, max(longest, 1))
    peak = roofline(hardware, model, engine, points)
    times = StepTimes(
        dense=by_name["fixed"] + by_name["dense"] * peak.dense,
        logits=by_name["dense"] * peak.logits,
        collective=by_name.get("collective", 0.0) * peak.collective,
        attention_prefill=by_name["attention_prefill"] * peak.attention_prefill,
        attention_decode=by_name["attention_decode"] * peak.attention_decode,
    )
    return step_samples(hardware, model, engine, points, times, LABEL), error


def _features(steps: pa.Table, hardware: Hardware, model: Model, engine: EngineLimits) -> dict[str, Floats]:
    new, cached = steps["prefill_tokens"].to_numpy(), steps["prefill_cached_tokens"].to_numpy()
    requests, context = steps["decode_requests"].to_numpy(), steps["decode_context_mean_tokens"].to_numpy()
    sequences = requests + (new > 0)
    features = {
        "fixed": np.ones(len(new)),
        "dense": dense_s(hardware, model, engine, new + requests) + logits_s(hardware, model, engine, sequences),
        "attention_prefill": np.where(new > 0, prefill_s(hardware, model, engine, new, cached), 0.0),
        "attention_decode": decode_s(hardware, model, engine, requests, context),
    }
    if engine.tensor_parallel > 1:
        features["collective"] = collective_s(hardware, model, engine, new + requests)
    return features


def _check_identified(names: list[str], relative: Floats, where: str) -> None:
    scaled = relative / np.maximum(np.linalg.norm(relative, axis=0), 1e-300)
    if len(relative) < STEPS_PER_FACTOR * len(names) or np.linalg.matrix_rank(scaled, tol=1e-6) < len(names):
        raise InputError(
            f"{where}: {len(relative)} whole steps cannot be taken apart into {', '.join(names)}; needed are at least "
            f"{STEPS_PER_FACTOR * len(names)} with prefill chunks of different lengths and decode batches of different "
            "sizes and contexts, or rows of single operations"
        )
