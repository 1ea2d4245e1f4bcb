"""Simulate one trace once, in a process of its own, and say what it took: python benchmarks/one_simulation.py FILE.json.

FILE.json: {"values": resolved configuration of a cell, "prepared": folder with step_table.npz and
link_calibration.parquet, "copies": of the trace, one after the other}. Everything that a user waits for is in it, from
the start of Python over reading the trace to the tables of results.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from pipeline import tables  # noqa: E402
from pipeline.cell import Cell  # noqa: E402
from pipeline.predictor.step_table import from_arrays  # noqa: E402
from pipeline.runs import Plant, scenario_of  # noqa: E402
from pipeline.hardware.base import links_of  # noqa: E402
from pipeline.serving import recorder  # noqa: E402
from pipeline.serving.simulate import simulate  # noqa: E402
from pipeline.trace.request_trace import RequestTrace  # noqa: E402

GAP_S = 1.0
"""Between the last arrival of one copy and the first of the next."""


def repeated(trace: RequestTrace, copies: int) -> RequestTrace:
    """The trace so many times, one after the other; equal content stays equal."""
    count, length_s = trace.request_count, float(trace.arrival_s[-1]) + GAP_S
    shift = np.repeat(np.arange(copies), count)
    spans = trace.block_offset[1:] - trace.block_offset[:-1]
    return replace(
        trace,
        request_id=np.arange(copies * count),
        session_id=np.tile(trace.session_id, copies) + shift * (int(trace.session_id.max()) + 1),
        class_id=np.tile(trace.class_id, copies),
        arrival_s=np.tile(trace.arrival_s, copies) + shift * length_s,
        think_s=np.tile(trace.think_s, copies),
        input_tokens=np.tile(trace.input_tokens, copies),
        output_tokens=np.tile(trace.output_tokens, copies),
        block_offset=np.concatenate([[0], np.cumsum(np.tile(spans, copies))]),
        block_ids=np.tile(trace.block_ids, copies),
    )


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Simulate and measure."""
    prepared = Path(task["prepared"])
    cell = Cell.of(task["values"])
    loaded = cell.trace.load(cell.seed, cell.max_context_tokens)
    table = from_arrays(tables.read_arrays(prepared / "step_table.npz"))
    plant = Plant(table, links_of(tables.read(prepared / "link_calibration.parquet")), "measured", None)  # type: ignore[arg-type]
    scenario = scenario_of(cell, repeated(loaded.trace, task["copies"]), plant)
    before_s = time.process_time()
    output = simulate(scenario)
    simulated_s = time.process_time() - before_s
    made = recorder.tables(output, "benchmark")
    return {
        "requests": scenario.trace.request_count,
        "rows": {name: table.num_rows for name, table in made.items()},
        "simulate_cpu_s": simulated_s,
        "process_cpu_s": time.process_time(),
        "most_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "mean_running_count": recorder.figures(output).mean_running_count,
        "step_count": recorder.figures(output).step_count,
    }


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))))
