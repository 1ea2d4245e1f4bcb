"""How much a scenario can take: the highest rate at which it still meets its SLO often enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipeline import metrics
from pipeline.serving.recorder import is_measured
from pipeline.serving.scenario import Scenario, SimulationOutput
from pipeline.serving.simulate import saturation, simulate
from pipeline.spec import InputError
from pipeline.trace.shaping import loaded

TARGET_RATIO = 0.9
"""SLO attainment at capacity, as a share of an unloaded cluster's: some prompts are too long for any cluster."""
UNLOADED_SHARE, FIRST_SHARE, MOST_SHARE = 0.01, 0.6, 8.0
"""Rates that are tried first, as shares of the throughput under saturation."""
STEP, PRECISION = 1.6, 1.1
"""Factor between rates that are tried until capacity lies between two, and how near these must then come."""
MOST_STEPS = 40


def attainment(output: SimulationOutput) -> float:
    """Share of the requests in the measured window that met the scenario's SLO."""
    trace, slo = output.scenario.trace, output.scenario.slo
    ttft = metrics.ttft_ms(output.arrival_s, output.first_token_s)
    tpot = metrics.tpot_ms(output.first_token_s, output.last_token_s, trace.output_tokens)
    return metrics.slo_attainment_ratio(metrics.meets_slo(ttft, tpot, slo.ttft_ms, slo.tpot_ms)[is_measured(output)])


def capacity_per_s(scenario: Scenario) -> float:
    """Highest rate, in requests per second, with nine tenths of the SLO attainment of an unloaded cluster.

    The rate is bracketed, then halved in to a tenth. A trace of so few sessions that no rate makes it miss the SLO
    cannot overload the cluster: its capacity is its throughput with everything there at once. Raises InputError
    if not one request meets the SLO without load.
    """
    saturated_per_s = saturation(scenario)

    def attained(rate_per_s: float) -> float:
        return attainment(simulate(replace(scenario, trace=loaded(scenario.trace, rate_per_s))))

    unloaded = attained(UNLOADED_SHARE * saturated_per_s)
    if not unloaded > 0:
        raise InputError(
            f"slo: given TTFT {scenario.slo.ttft_ms:g} ms and TPOT {scenario.slo.tpot_ms:g} ms, which no request of "
            f"{scenario.trace.name} meets even on an unloaded cluster: there is no capacity to take a share of; set a "
            "looser slo (slo=..., slo.ttft_ms=..., slo.tpot_ms=...), or a rate (load=rate_1)"
        )
    target = TARGET_RATIO * unloaded

    def holds(rate_per_s: float) -> bool:
        return attained(rate_per_s) >= target

    if holds(MOST_SHARE * saturated_per_s):
        return saturated_per_s
    return _highest(holds, FIRST_SHARE * saturated_per_s)


def _highest(holds: Callable[[float], bool], start: float) -> float:
    """Highest value for which `holds` is true, searched from `start` by factors."""
    low = high = start
    if holds(start):
        for _ in range(MOST_STEPS):
            high *= STEP
            if not holds(high):
                break
            low = high
    else:
        for _ in range(MOST_STEPS):
            low /= STEP
            if holds(low):
                break
            high = low
    while high / low > PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
