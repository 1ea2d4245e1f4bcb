"""Bins of the operations of several inputs: a forest over bin numbers is piecewise constant on the bins exactly.

A forest over the raw inputs has thousands of thresholds per axis, whose table would be hundreds of megabytes. Within a
bin (6 % wide) the physical baseline still varies with the inputs; only the ratio to it is constant.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS_PER_OCTAVE = 12
MOST = 2.0**40
"""Beyond any count: edges below `most` are those below this one."""


def bin_edges(most: float) -> Floats:
    """Edges, ascending, between whole numbers from 0 to `most`: every number while that is finer, then geometric."""
    octaves = np.log2(max(most, 2.0))
    geometric = 2.0 ** (np.arange(int(octaves * BINS_PER_OCTAVE) + 1) / BINS_PER_OCTAVE)
    edges = np.unique(np.floor(np.append(0.0, geometric)) + 0.5)
    return np.asarray(edges[edges < most])


def bin_numbers(edges: Floats, values: Floats) -> Floats:
    """Number of the bin of each value; a value on an edge belongs below it, as in `step_table.cell`."""
    return np.searchsorted(edges, values, side="left").astype(np.float64)


def bin_middles(numbers: Floats) -> Floats:
    """Middle of each bin of that number, whichever was the last."""
    edges = bin_edges(MOST)
    middles = np.append(0.0, (edges[1:] + edges[:-1]) / 2)
    return np.asarray(middles[numbers.astype(np.int64)])
