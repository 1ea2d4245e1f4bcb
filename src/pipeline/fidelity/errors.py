"""How far simulated times are from measured ones, per metric and statistic: the table `fidelity`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline import metrics
from pipeline.fidelity.case import Case, Floats, Ints, Times
from pipeline.schema import FIDELITY
from pipeline.tables import from_rows

PERCENTILES = {"median": 50, "P90": 90, "P95": 95, "P99": 99}


def errors(case: Case, simulated: Times, derived: Sequence[str] = ()) -> pa.Table:
    """Compare a replay with its run, TTFT, TPOT and E2E x mean, median, P90, P95, P99; times from when it was taken.

    derived: terms of its steps that were not measured with it; they are named beside the source.
    """
    output_tokens = case.requests.output_tokens
    measured, found = statistics(case.measured, output_tokens), statistics(simulated, output_tokens)
    peer = None if case.peer is None else statistics(case.peer, output_tokens)
    return from_rows(
        FIDELITY,
        [
            {
                "case": case.name,
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
