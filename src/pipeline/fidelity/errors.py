"""How far simulated times are from measured ones, per metric and statistic; and the predicted times of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline import metrics
from pipeline.fidelity.case import Case, Times
from pipeline.fidelity.checked import Floats, Ints
from pipeline.predictor.base import Predictor
from pipeline.predictor.kernel_accuracy import kernel_accuracy
from pipeline.schema import FIDELITY, PREDICTOR_ACCURACY
from pipeline.spec import InputError
from pipeline.tables import from_rows

DERIVED = "; derived: "
"""Between the source of a case and what was not measured."""
PERCENTILES = {"median": 50, "P90": 90, "P95": 95, "P99": 99}


def errors(case: Case, simulated: Times, predictor: str, derived: Sequence[str] = ()) -> pa.Table:
    """Compare a replay with its run, TTFT, TPOT and E2E x mean, median, P90, P95, P99; times from when it was taken.

    predictor: what predicted its step times. derived: what of it was assumed or derived instead of measured with it,
    named beside the source; so is a metric that no request has. Raises InputError where one was measured as 0.
    """
    output_tokens = case.requests.output_tokens
    measured, found = statistics(case.measured, output_tokens), statistics(simulated, output_tokens)
    peer = None if case.peer is None else statistics(case.peer, output_tokens)
    for metric, value in measured.items():
        if not value > 0:
            raise InputError(f"fidelity: case {case.name}: {metric} was measured as {value:g} ms, expected more than 0")
    left_out = [] if "TPOT mean" in measured else [f"TPOT (left out: one output token in all {output_tokens.size})"]
    terms = [*derived, *left_out]
    source = DERIVED.join([case.meta.source_repo, *([", ".join(terms)] if terms else [])])
    return from_rows(
        FIDELITY,
        [
            {
                "case": case.name,
                "predictor": predictor,
                "source": source,
                "metric": metric,
                "measured": value,
                "simulated": found[metric],
                "error_ratio": found[metric] / value - 1,
                "peer_error_ratio": None if peer is None else peer[metric] / value - 1,
            }
            for metric, value in measured.items()
        ],
    )


def held_out_errors(case: Case, predictor: Predictor, seed: int) -> pa.Table:
    """How well `predictor` knows the kernel tables of a case: rows of predictor_accuracy."""
    about = {
        "case": case.name,
        "hardware": case.meta.hardware,
        "model": case.meta.model,
        "tensor_parallel": case.meta.tensor_parallel,
        "predictor": predictor.name,
    }
    rows = kernel_accuracy(case.kernels, predictor, seed)
    return from_rows(PREDICTOR_ACCURACY, [{**about, **row} for row in rows])


def statistics(times: Times, output_tokens: Ints) -> Mapping[str, float]:
    """Milliseconds by metric and statistic; a request of one token has no TPOT, nor has a run of none but such."""
    by_metric: dict[str, Floats] = {
        "TTFT": metrics.ttft_ms(times.taken_s, times.first_token_s),
        "TPOT": metrics.tpot_ms(times.first_token_s, times.last_token_s, output_tokens),
        "E2E": metrics.e2el_ms(times.taken_s, times.last_token_s),
    }
    result = {}
    for metric, values in by_metric.items():
        if np.isnan(values).all():
            continue
        result[f"{metric} mean"] = float(np.nanmean(values))
        for name, percent in PERCENTILES.items():
            result[f"{metric} {name}"] = float(np.nanpercentile(values, percent))
    return result


def mean_absolute_error_ratio(table: pa.Table, column: str = "error_ratio") -> float:
    """Mean over the metrics of a case."""
    return float(np.abs(table[column].to_numpy()).mean())
