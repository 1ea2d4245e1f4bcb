"""What simulations read from the stages before them."""

from functools import cache
from pathlib import Path

import pyarrow as pa

from pipeline import tables
from pipeline.predictor.step_table import from_arrays as step_table_from
from pipeline.runs import Plant, make_plant
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.storage import from_arrays as trace_from


@cache
def plant(calibrated: Path, trained: Path) -> Plant:
    """Read what calibrate and train wrote."""
    names = ("link_calibration", "constants", "step_samples")
    links, constants, samples = (tables.read(calibrated / f"{name}.parquet") for name in names)
    return make_plant(step_table_from(tables.read_arrays(trained / "step_table.npz")), links, constants, samples)


@cache
def trace(folder: Path) -> RequestTrace:
    """Read a prepared trace."""
    return trace_from(tables.read_arrays(folder / "trace.npz"))


@cache
def trace_quality(folder: Path) -> pa.Table:
    """Read what became of its rows."""
    return tables.read(folder / "trace_quality.parquet")
