"""TTFT, TPOT, E2EL, SLO attainment and goodput: the only definitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def ttft_ms(arrival_s: Floats, first_token_s: Floats) -> Floats:
    """Arrival at the router to the first output token; NaN where there was none. Shapes (n,), milliseconds."""
    return (first_token_s - arrival_s) * 1e3


def e2el_ms(arrival_s: Floats, last_token_s: Floats) -> Floats:
    """Arrival at the router to the last output token; NaN where there was none. Shapes (n,), milliseconds."""
    return (last_token_s - arrival_s) * 1e3


def tpot_ms(first_token_s: Floats, last_token_s: Floats, output_tokens: Ints) -> Floats:
    """(E2EL - TTFT)/(output_tokens - 1); NaN for a single token. Shapes (n,), milliseconds."""
    gaps = np.where(output_tokens > 1, output_tokens - 1, 1)
    return np.where(output_tokens > 1, (last_token_s - first_token_s) * 1e3 / gaps, np.nan)


def meets_slo(ttft: Floats, tpot: Floats, slo_ttft_ms: float, slo_tpot_ms: float) -> NDArray[np.bool_]:
    """Whether each request met both objectives; one without a TPOT is judged on TTFT, one without a TTFT failed."""
    return (ttft <= slo_ttft_ms) & (np.isnan(tpot) | (tpot <= slo_tpot_ms))


def slo_attainment_ratio(met: NDArray[np.bool_]) -> float:
    """Share of the *arrived* requests that met the SLO (rejected ones are in `met` as False); NaN if none arrived."""
    return float(met.mean()) if met.size else float("nan")


def goodput_per_s(met: NDArray[np.bool_], duration_s: float) -> float:
    """Requests per second that met the SLO, over `duration_s` > 0."""
    return float(met.sum()) / duration_s
