"""Measured attention times of batches, put on a full grid of chunk, cached tokens, decodes and KV tokens.

Profiles are unions of grids with holes. A batch that was not measured is taken to cost what its chunk and its decodes
cost by themselves, times a ratio interpolated between the measured batches around it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.spec import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
COORDINATES = 4
KINDS = {
    "attention_prefill": "chunks alone",
    "attention_decode": "decodes alone",
    "attention_mixed": "both together",
}
"""Kinds of batches, in words."""


def kinds_of(rows: Floats) -> dict[str, Bools]:
    """Which of the rows (m, 5) are of each kind."""
    chunk, decodes = rows[:, 0] > 0, rows[:, 2] > 0
    return dict(zip(KINDS, (chunk & ~decodes, decodes & ~chunk, chunk & decodes), strict=True))


def batch_coordinates(rows: Floats) -> list[Floats]:
    """Coordinates of the full grid: new and cached tokens of the chunk, decodes (0 each first), KV tokens of each.

    rows: (m, 5) new and cached tokens of the chunk, decodes, KV tokens of each, seconds; 0 where there is none of a
    kind. Raises InputError where a kind of batches was not measured, and for a time that is not positive.
    """
    if not (rows[:, 4] > 0).all():
        raise InputError(f"attention: given a time of {rows[:, 4].min()} s, expected more than 0")
    for kind, chosen in kinds_of(rows).items():
        if not chosen.any():
            raise InputError(f"attention: given no batches of {KINDS[kind]}, expected some")
    grids = [np.unique(rows[:, i]) for i in range(COORDINATES)]
    grids[0], grids[2] = (np.union1d([0.0], grids[i]) for i in (0, 2))
    grids[3] = grids[3][grids[3] > 0]
    return grids


def batch_grid(rows: Floats) -> tuple[list[Floats], Floats]:
    """Coordinates of the grid, and the seconds (new, cached, decodes, KV tokens) at each point, interpolated.

    Raises InputError as batch_coordinates.
    """
    grids = batch_coordinates(rows)
    at = [np.searchsorted(grid, rows[:, i]) for i, grid in enumerate(grids)]
    measured = np.full([grid.size for grid in grids], np.nan)
    kinds = kinds_of(rows)
    for chosen in kinds.values():
        measured[tuple(axis[chosen] for axis in at)] = rows[chosen, 4]
    alone = np.full((grids[0].size, grids[1].size), np.nan)
    only = kinds["attention_prefill"]
    alone[at[0][only], at[1][only]] = rows[only, 4]
    alone = np.vstack([np.zeros(grids[1].size), filled(alone[1:], [grids[0][1:], grids[1]])])
    decoding = measured[0, 0, :, :]
    decoding = np.vstack([np.zeros(grids[3].size), filled(decoding[1:], [grids[2][1:], grids[3]])])
    apart = alone[:, :, None, None] + decoding[None, None, :, :]
    apart[1:, :, 1:, :] *= _ratios(measured[1:, :, 1:, :] / apart[1:, :, 1:, :], [grids[0][1:], grids[1], grids[3]])
    return grids, apart


def _ratios(ratio: Floats, grids: list[Floats]) -> Floats:
    """Fill the ratio of both together to both apart; for a number of decodes never measured so, as for the next fewer.

    That of the fewest that were measured stands for those below.
    """
    measured = [d for d in range(ratio.shape[2]) if not np.isnan(ratio[:, :, d, :]).all()]
    for d in range(ratio.shape[2]):
        if d in measured:
            ratio[:, :, d, :] = filled(ratio[:, :, d, :], grids)
    for d in range(ratio.shape[2]):
        if d not in measured:
            ratio[:, :, d, :] = ratio[:, :, max((m for m in measured if m < d), default=measured[0]), :]
    return ratio


def filled(values: Floats, grids: list[Floats]) -> Floats:
    """Fill what is missing (NaN) on a grid: linearly between the points around it, with logarithmic coordinates.

    Beyond the outermost points the nearest one holds.
    """
    missing = np.isnan(values)
    if not missing.any():
        return values
    points = np.stack(np.meshgrid(*(np.log2(1.0 + grid) for grid in grids), indexing="ij"), axis=-1)
    result = values.copy()
    result[missing] = scattered(points[~missing], values[~missing], points[missing])
    return result


def scattered(known: Floats, values: Floats, wanted: Floats) -> Floats:
    """Values (n,) at the points `wanted` (n, f), from those (m,) at the points `known` (m, f), m > 0.

    Linear between the points around; beyond the outermost, and where all lie in one plane, as at the nearest.
    """
    from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

    found = np.full(len(wanted), np.nan)
    if np.linalg.matrix_rank(known - known[0]) == known.shape[1] and len(known) > known.shape[1] + 1:
        found = LinearNDInterpolator(known, values)(wanted)
    outside = np.isnan(found)
    found[outside] = NearestNDInterpolator(known, values)(wanted[outside])
    return np.asarray(found)
