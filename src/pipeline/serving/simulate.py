"""The two questions that a scenario is asked: what happens, and how much can it take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.serving.cluster import Cluster
from pipeline.serving.invariants import check
from pipeline.serving.scenario import Scenario, SimulationOutput
from pipeline.spec import InputError
from pipeline.trace.shaping import saturating

STEADY = (0.1, 0.9)
"""Share of the completions between which the throughput is taken: before, the cluster fills; after, it runs dry."""


def simulate(scenario: Scenario) -> SimulationOutput:
    """Simulate the scenario. The same scenario gives the same bytes.

    Raises InputError for a scenario that cannot be, RuntimeError for one that breaks an invariant.
    """
    output = Cluster(scenario).run()
    check(output)
    return output


def saturation(scenario: Scenario) -> float:
    """Simulated capacity in requests per second: the throughput when all sessions are there from the start.

    Nobody thinks, and what is counted lies between a tenth and nine tenths of the completions. Raises InputError if
    none is served.
    """
    output = simulate(replace(scenario, trace=saturating(scenario.trace)))
    ends = np.sort(output.last_token_s[~np.isnan(output.last_token_s)])
    if not ends.size:
        raise InputError(f"trace {scenario.trace.name}: no instance can serve any of its requests: no capacity")
    first, last = (round(share * (ends.size - 1)) for share in STEADY)
    if ends[last] > ends[first]:
        return float((last - first) / (ends[last] - ends[first]))
    return float(ends.size / ends[-1])
