"""What a source of calibration is, and what calibrating gives: step samples, constants and links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pipeline.model import Model
from pipeline.spec import InputError, Spec
from pipeline.values import EngineLimits

if TYPE_CHECKING:
    from pipeline.hardware.spec import Hardware


class LinkConstants(NamedTuple):
    """Time of a transfer = latency_s + pieces x descriptor_s + bytes / bandwidth_bytes_per_s, one way."""

    bandwidth_bytes_per_s: float
    latency_s: float
    descriptor_s: float


@dataclass(frozen=True)
class Calibration:
    """Tables step_samples, constants and link_calibration, and where the step times come from.

    source: silicon_interpolated, measured, scaled or datasheet. is_calibrated: whether any measurement of this model's
    operations stands behind the step times; false for a datasheet.
    """

    step_samples: pa.Table
    constants: pa.Table
    link_calibration: pa.Table
    source: str
    is_calibrated: bool


class CalibrationSource(Spec):
    """Where the step times of a hardware come from; one class per kind of source."""

    def runs_here(self) -> bool:
        """Whether this source can be read on this machine."""
        return True

    def file(self) -> Path | None:
        """The file it reads, if any: another content is another calibration."""
        return None

    def check_model(self, model: Model) -> None:
        """Raise ValueError, naming what to use instead, for an architecture that this source has no times of."""

    def calibrate(self, hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
        """Give samples of every operation within the engine's limits. Raises InputError naming what is missing."""
        raise NotImplementedError


def calibrate(hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
    """Calibrate `hardware` for `model` under `engine`'s limits.

    Raises InputError when tensor parallelism does not divide the heads, when the source has no times of such a model,
    when the ranks do not fit into a node, or when the weights do not fit into their HBM.
    """
    ranks = engine.tensor_parallel
    try:
        model.check_tensor_parallel(ranks)
        hardware.source.check_model(model)
    except ValueError as exc:
        raise InputError(str(exc)) from exc
    if ranks > hardware.gpus_per_node:
        raise InputError(
            f"engine.tensor_parallel: given {ranks}, but a node of {hardware.name} has {hardware.gpus_per_node} GPUs"
        )
    if hardware.free_hbm_bytes(model, ranks) <= 0:
        weight_bytes = ranks * model.rank_weight_bytes(ranks)
        raise InputError(
            f"engine.tensor_parallel: given {ranks}, but the weights of {model.name} take {weight_bytes:.3g} "
            f"bytes and {ranks} x {hardware.name} hold {ranks * hardware.hbm_bytes.value:.3g}"
        )
    return hardware.source.calibrate(hardware, model, engine)


def links_of(link_calibration: pa.Table) -> dict[tuple[str, str], LinkConstants]:
    """Read the table link_calibration into constants by (source tier, target tier).

    hbm <-> dram and dram <-> remote: per GPU; dram -> ssd (write) and ssd -> dram (read): per node; hbm -> hbm: the
    hand-off between two instances, per GPU.
    """
    return {
        (row["source_tier"], row["target_tier"]): LinkConstants(
            row["bandwidth_bytes_per_s"], row["latency_s"], row["descriptor_s"]
        )
        for row in link_calibration.to_pylist()
    }
