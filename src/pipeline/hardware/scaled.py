"""`Scaled`: step times of a GPU nobody measured, from the achieved efficiency of another on the same operations."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.hardware.base import Calibration, CalibrationSource, calibrate
from pipeline.hardware.roofline import StepTimes, roofline
from pipeline.hardware.rows import constant, constants, links, read_samples, step_samples
from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.spec import Sourced
from pipeline.values import EngineLimits

LABEL = "scaled"


class Scaled(CalibrationSource):
    """Keep, at every sampled point, the share of the roofline that `reference` achieves.

    time = time of reference x roofline of this hardware / roofline of reference: where both are bound by arithmetic
    that is the ratio of their FLOP rates, where both are bound by memory that of their bandwidths, between them the
    binding one of each. Launch overheads are scaled along, though they need not follow the peaks: an approximation.
    """

    reference: Hardware

    def runs_here(self) -> bool:
        """Whether the reference's own source can be read here."""
        return self.reference.source.runs_here()

    def file(self) -> Path | None:
        """The file that the reference's own source reads."""
        return self.reference.source.file()

    def check_model(self, model: Model) -> None:
        """Raise ValueError where the reference's own source has no times of the model."""
        self.reference.source.check_model(model)

    def calibrate(self, hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
        """Scale the samples of the reference to this hardware's peaks."""
        found = calibrate(self.reference, model, engine)
        points, times = read_samples(found.step_samples)
        here = roofline(hardware, model, engine, points)
        there = roofline(self.reference, model, engine, points)
        scaled = StepTimes(*(t * np.divide(a, b) for t, a, b in zip(times, here, there, strict=True)))
        samples = step_samples(hardware, model, engine, points, scaled, LABEL)
        counted = [row for row in found.constants.to_pylist() if row["name"].endswith("sample_count")]
        more = [
            constant(
                "reference_sample_count",
                row["unit"],
                Sourced(
                    value=row["value"],
                    source=f"scaled by peak figures from {self.reference.name}: {row['source']}",
                    as_of=row["as_of"],
                ),
            )
            for row in counted
        ]
        table = constants(hardware, model, engine, more)
        return Calibration(samples, table, links(hardware), LABEL, found.is_calibrated)
