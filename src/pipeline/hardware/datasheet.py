"""`Datasheet`: step times from peak figures alone, the uncalibrated control."""

from __future__ import annotations

from pipeline.hardware.base import Calibration, CalibrationSource
from pipeline.hardware.grid import sample_points
from pipeline.hardware.roofline import roofline
from pipeline.hardware.rows import constants, kv_tokens, links, step_samples
from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.values import EngineLimits

LABEL = "datasheet"


class Datasheet(CalibrationSource):
    """Roofline of the hardware's peak figures; nothing is measured, so results on it are marked uncalibrated."""

    def calibrate(self, hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
        """Give roofline times over all that the engine can schedule."""
        most = engine.max_batched_tokens + engine.max_running
        points = sample_points(model, engine, kv_tokens(hardware, model, engine), most, model.max_context_tokens)
        samples = step_samples(hardware, model, engine, points, roofline(hardware, model, engine, points), LABEL)
        return Calibration(samples, constants(hardware, model, engine, []), links(hardware), LABEL, False)
