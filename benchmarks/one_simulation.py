"""Simulate one trace in a process of its own and say what it took: python benchmarks/one_simulation.py FILE.json.

FILE.json: {"values": resolved configuration of a cell, "prepared": folder that `prepare` has filled, "copies": of the
trace, one after the other, "rate_factor": how much faster it comes}. Everything that a user waits for is in it, from
the start of Python over reading the trace to the tables of results.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "workflow/scripts")]

from pipeline.provenance import set_numba_cache  # noqa: E402

set_numba_cache(ROOT / "results")  # keyed by the source: what an older version compiled is not taken

import _inputs  # noqa: E402

from pipeline.cell import Cell  # noqa: E402
from pipeline.runs import scenario_of  # noqa: E402
from pipeline.serving import recorder  # noqa: E402
from pipeline.serving.simulate import simulate  # noqa: E402
from pipeline.trace.request_trace import RequestTrace  # noqa: E402

GAP_S = 1.0
"""Between the last arrival of one copy and the first of the next."""


def repeated(trace: RequestTrace, copies: int, rate_factor: float) -> RequestTrace:
    """The trace so many times, one after the other; equal content stays equal."""
    count, length_s = trace.request_count, float(trace.arrival_s[-1]) + GAP_S
    copy = np.repeat(np.arange(copies), count)
    spans = trace.block_offset[1:] - trace.block_offset[:-1]
    return replace(
        trace,
        request_id=np.arange(copies * count),
        session_id=np.tile(trace.session_id, copies) + copy * (int(trace.session_id.max()) + 1),
        class_id=np.tile(trace.class_id, copies),
        arrival_s=(np.tile(trace.arrival_s, copies) + copy * length_s) / rate_factor,
        think_s=np.tile(trace.think_s, copies),
        input_tokens=np.tile(trace.input_tokens, copies),
        output_tokens=np.tile(trace.output_tokens, copies),
        block_offset=np.concatenate([[0], np.cumsum(np.tile(spans, copies))]),
        block_ids=np.tile(trace.block_ids, copies),
    )


def most_mb() -> float:
    """Peak memory of this process since it started its program, in MB (Linux)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1e3


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Simulate and measure."""
    folder = Path(task["prepared"])
    cell = Cell.of(task["values"])
    plant = _inputs.plant(folder, folder)
    trace = cell.trace.jittered(cell.trace.load(cell.seed, cell.max_context_tokens).trace, cell.seed)
    scenario = scenario_of(cell, repeated(trace, task["copies"], task["rate_factor"]), plant)
    before_s = time.process_time()
    output = simulate(scenario)
    simulated_s = time.process_time() - before_s
    figures = recorder.figures(output)
    made = recorder.tables(output, "benchmark")
    return {
        "requests": made["requests"].num_rows,
        "steps": figures.step_count,
        "mean_running_count": figures.mean_running_count,
        "simulate_cpu_s": simulated_s,
        "process_cpu_s": time.process_time(),
        "most_mb": most_mb(),
    }


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))))
