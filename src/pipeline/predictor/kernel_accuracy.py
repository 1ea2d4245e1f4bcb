"""How well a predictor knows kernel tables: a part of them is held out, and predicted from the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.accuracy import accuracy_row
from pipeline.predictor.base import Predictor
from pipeline.predictor.batch_grid import COORDINATES, kinds_of
from pipeline.predictor.features import FEWEST_SAMPLES, Bools, held_out
from pipeline.predictor.joint_attention import batch_s
from pipeline.predictor.kernel_tables import KernelTables, joint_attention

Floats = NDArray[np.float64]


def kernel_accuracy(tables: KernelTables, predictor: Predictor, seed: int) -> list[dict[str, object]]:
    """Rows of predictor_accuracy of every operation, splits train and held_out, less what they are of.

    Held out is a share of the rows of each layer, and of each kind of batches; none where there are too few, and none
    that take no time. The layers of an operation count alike.
    """
    found: dict[tuple[str, str], list[Floats]] = {}
    for part in (_layers(tables, predictor, seed), _batches(tables, predictor, seed)):
        for operation, held, predicted_s, actual_s in part:
            for split, chosen in (("train", ~held), ("held_out", held)):
                found.setdefault((operation, split), []).append(np.stack([predicted_s[chosen], actual_s[chosen]]))
    rows = []
    for (operation, split), pairs in found.items():
        predicted_s, actual_s = np.concatenate(pairs, axis=1)
        rows.append(accuracy_row(operation, split, predicted_s, actual_s, "measured"))
    return rows


def _layers(tables: KernelTables, predictor: Predictor, seed: int) -> Iterator[tuple[str, Bools, Floats, Floats]]:
    """Per layer: operation, which rows are held out, predicted and measured seconds (m,)."""
    layers = [("dense", rows) for rows in tables.dense.values()]
    layers += [("logits", rows) for rows in tables.per_sequence.values()]
    for i, (operation, rows) in enumerate(layers):
        timed = rows[rows[:, 1] > 0]
        if len(timed) >= FEWEST_SAMPLES:
            held = held_out(len(timed), predictor.held_out_ratio, seed, i)
            yield operation, held, predictor.layer_s(timed[~held], timed[:, 0], seed)[0], timed[:, 1]


def _batches(tables: KernelTables, predictor: Predictor, seed: int) -> Iterator[tuple[str, Bools, Floats, Floats]]:
    """The same per kind of batches, as the look-up gives them."""
    rows = tables.attention
    held = np.zeros(len(rows), dtype=bool)
    first = len(tables.dense) + len(tables.per_sequence)
    kinds = {kind: chosen for kind, chosen in kinds_of(rows).items() if chosen.sum() >= FEWEST_SAMPLES}
    for i, chosen in enumerate(kinds.values()):
        held[np.flatnonzero(chosen)[held_out(int(chosen.sum()), predictor.held_out_ratio, seed, first + i)]] = True
    if kinds:
        joint = joint_attention(rows[~held], 1, predictor, seed)
        predicted_s = np.array([batch_s(joint, *batch) for batch in rows[:, :COORDINATES]])
    for kind, chosen in kinds.items():
        yield kind, held[chosen], predicted_s[chosen], rows[chosen, 4]
