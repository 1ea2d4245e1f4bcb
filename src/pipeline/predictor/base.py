"""What a predictor is: samples in, a compiled look-up of step times out, with its error stated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from pipeline.model import Model
from pipeline.predictor.accuracy import accuracy_row
from pipeline.predictor.batch_fit import fitted_batches
from pipeline.predictor.features import OPERATIONS, OperationSamples, held_out, samples_of
from pipeline.predictor.fitted import Fitted, Regressor, fit
from pipeline.schema import PREDICTOR_ACCURACY
from pipeline.spec import InputError, OpenRatio, Spec
from pipeline.tables import from_rows
from pipeline.values import EngineLimits

if TYPE_CHECKING:  # numba takes a second to import, which only training needs
    from pipeline.predictor.step_table import StepTable

OPTIONAL = ("logits", "collective")
TABLE_POINTS = 2000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trained:
    """The look-up of step times, and the table predictor_accuracy."""

    table: StepTable
    accuracy: pa.Table

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The look-up as named arrays."""
        from pipeline.predictor.step_table import to_arrays

        return to_arrays(self.table)


class Predictor(Spec):
    """Learns the ratio of an operation's time to a physical baseline; a subclass says with which regressor.

    held_out_ratio: share of the samples of each operation that is never trained on, and on which the error is stated.
    """

    name: str
    held_out_ratio: OpenRatio = Field(description="share of samples held out")

    def regressor(self, seed: int, input_count: int) -> Regressor | None:
        """Give a fresh regressor for an operation of one or two inputs; None for the baseline alone."""
        raise NotImplementedError

    def layer_s(self, rows: Floats, counts: Floats, seed: int) -> tuple[Floats, float]:
        """Learn the time of a layer from rows (m, 2) of count and seconds.

        Returns seconds (n,) of a call at `counts` (n,), and seconds per count beyond the last row.
        """
        timed = rows[rows[:, 1] > 0]
        if not len(timed):
            return np.zeros(counts.size), 0.0
        fitted = fit(OperationSamples("dense", timed[:, :1], timed[:, 1]), self.regressor(seed, 1))
        return fitted.time_s(counts[:, None]), fitted.slope_s()

    def batches_s(self, rows: Floats, seed: int) -> tuple[list[Floats], Floats]:
        """Learn the attention times of batches from rows (m, 5); see batch_grid for them and for what is returned.

        Raises InputError as batch_coordinates.
        """
        return fitted_batches(rows, partial(self.regressor, seed))

    def train(self, step_samples: pa.Table, model: Model, engine: EngineLimits, seed: int) -> Trained:
        """Fit every operation of `step_samples` (of one hardware, model and tensor parallelism) and tabulate it.

        Accuracy against the samples: splits train and held_out of a fit made without the held-out samples. The look-up
        is of the same fit on all samples; split table is it against that fit, at the samples and at random points
        among them. Raises InputError when an operation is missing.
        """
        from pipeline.predictor.tabulate import tabulate

        fits: dict[str, Fitted] = {}
        sampled: dict[str, OperationSamples] = {}
        rows: list[dict[str, object]] = []
        against = ", ".join(sorted(set(step_samples["source"].to_pylist())))
        for i, operation in enumerate(OPERATIONS):
            samples = samples_of(step_samples, operation)
            if samples is None:
                if operation not in OPTIONAL:
                    raise InputError(f"step_samples: no rows of {operation} for {model.name}")
                continue
            held = held_out(len(samples.time_s), self.held_out_ratio, seed, i)
            inputs = samples.inputs.shape[1]
            trained = fit(samples.part(~held), self.regressor(seed, inputs))
            for split, part in (("train", samples.part(~held)), ("held_out", samples.part(held))):
                rows.append(accuracy_row(operation, split, trained.time_s(part.inputs), part.time_s, against))
            fits[operation], sampled[operation] = fit(samples, self.regressor(seed, inputs)), samples
        table = tabulate(fits, engine, float(sampled["attention_prefill"].inputs.sum(axis=1).max()))
        rows += [_table_row(table, operation, fits, sampled[operation], seed) for operation in fits]
        keys = {name: step_samples[name][0].as_py() for name in ("hardware", "model", "tensor_parallel")}
        about = {"case": None, **keys, "predictor": self.name}
        accuracy = from_rows(PREDICTOR_ACCURACY, [{**about, **row} for row in rows])
        return Trained(table, accuracy)


def _table_row(
    table: StepTable, operation: str, fits: dict[str, Fitted], samples: OperationSamples, seed: int
) -> dict[str, object]:
    from pipeline.predictor.lookup import look_up_s

    rng = np.random.Generator(np.random.Philox(key=[seed, 100 + OPERATIONS.index(operation)]))
    low, high = samples.inputs.min(axis=0), samples.inputs.max(axis=0)
    drawn = np.rint(rng.uniform(low, high, (TABLE_POINTS, samples.inputs.shape[1])))
    inputs = np.concatenate([samples.inputs, drawn])
    with_collective = operation in ("dense", "collective") and "collective" in fits
    parts = ("dense", "collective") if with_collective else (operation,)
    expected_s = sum((fits[part].time_s(inputs) for part in parts), np.zeros(len(inputs)))
    return accuracy_row(operation, "table", look_up_s(table, operation, inputs), expected_s, "the fit it tabulates")
