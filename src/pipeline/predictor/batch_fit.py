"""Attention times of batches, fitted: of each kind of batches physical terms times a learned ratio."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.batch_grid import batch_coordinates, kinds_of
from pipeline.predictor.features import OperationSamples
from pipeline.predictor.fitted import Regressor, fit

Floats = NDArray[np.float64]
COLUMNS = {"attention_prefill": [0, 1], "attention_decode": [2, 3], "attention_mixed": [0, 1, 2, 3]}
"""What a kind of batches depends on."""


def fitted_batches(rows: Floats, regressor: Callable[[int], Regressor | None]) -> tuple[list[Floats], Floats]:
    """Coordinates of the grid and the seconds at each point, as batch_grid gives them; `regressor` by inputs.

    Raises InputError as batch_coordinates.
    """
    grids = batch_coordinates(rows)
    parts: dict[str, Floats] = {}
    for kind, chosen in kinds_of(rows).items():
        inputs = COLUMNS[kind]
        samples = OperationSamples(kind, rows[chosen][:, inputs], rows[chosen, 4])
        axes = [grids[i] if i % 2 else grids[i][1:] for i in inputs]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        fitted = fit(samples, regressor(len(inputs)))
        parts[kind] = fitted.time_s(points.reshape(-1, len(inputs))).reshape(points.shape[:-1])
    time_s = np.zeros([grid.size for grid in grids])
    time_s[1:, :, 0, :] = parts["attention_prefill"][:, :, None]
    time_s[0, :, 1:, :] = parts["attention_decode"][None]
    time_s[1:, :, 1:, :] = parts["attention_mixed"]
    return grids, time_s
