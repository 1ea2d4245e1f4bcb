"""How far simulated times are from measured ones, per metric and statistic; and the predicted times of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline import metrics
from pipeline.fidelity.case import Case, Floats, Ints, Times
from pipeline.predictor.base import Predictor
from pipeline.predictor.kernel_accuracy import kernel_accuracy
from pipeline.schema import FIDELITY, PREDICTOR_ACCURACY
from pipeline.tables import from_rows

PERCENTILES = {"median": 50, "P90": 90, "P95": 95, "P99": 99}


def errors(case: Case, simulated: Times, predictor: str, derived: Sequence[str] = ()) -> pa.Table:
    """Compare a replay with its run, TTFT, TPOT and E2E x mean, median, P90, P95, P99; times from when it was taken.

    predictor: what predicted its step times. derived: terms of its steps that were not measured with it; they are
    named beside the source.
    """
    output_tokens = case.requests.output_tokens
    measured, found = statistics(case.measured, output_tokens), statistics(simulated, output_tokens)
    peer = None if case.peer is None else statistics(case.peer, output_tokens)
    return from_rows(
        FIDELITY,
        [
            {
                "case": case.name,
                "predictor": predictor,
                "source": "; derived: ".join([case.source, *([", ".join(derived)] if derived else [])]),
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
        "hardware": case.hardware,
        "model": case.model,
        "tensor_parallel": case.tensor_parallel,
        "predictor": predictor.name,
    }
    rows = kernel_accuracy(case.kernels, predictor, seed)
    return from_rows(PREDICTOR_ACCURACY, [{**about, **row} for row in rows])


def statistics(times: Times, output_tokens: Ints) -> Mapping[str, float]:
    """Milliseconds by metric and statistic; a request of one token has no TPOT."""
    by_metric: dict[str, Floats] = {
        "TTFT": metrics.ttft_ms(times.taken_s, times.first_token_s),
        "TPOT": metrics.tpot_ms(times.first_token_s, times.last_token_s, output_tokens),
        "E2E": metrics.e2el_ms(times.taken_s, times.last_token_s),
    }
    result = {}
    for metric, values in by_metric.items():
        result[f"{metric} mean"] = float(np.nanmean(values))
        for name, percent in PERCENTILES.items():
            result[f"{metric} {name}"] = float(np.nanpercentile(values, percent))
    return result


def mean_absolute_error_ratio(table: pa.Table, column: str = "error_ratio") -> float:
    """Mean over the metrics of a case."""
    return float(np.abs(table[column].to_numpy()).mean())
