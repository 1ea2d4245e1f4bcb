"""`ThisMachine`: the DRAM and the disk of the machine at hand, measured; its GPU is taken from a datasheet."""

from __future__ import annotations

import platform
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, model_validator

from pipeline.hardware.base import Calibration
from pipeline.hardware.datasheet import Datasheet
from pipeline.hardware.fit import LineFit, fit_line
from pipeline.hardware.probes import ALIGNMENT_BYTES, Transfers, copy_in_dram, disk_transfers
from pipeline.hardware.rows import constant, constants, link_row, links
from pipeline.hardware.spec import Hardware, Link
from pipeline.model import Model
from pipeline.schema import LINK_CALIBRATION
from pipeline.spec import Count, Positive, Sourced
from pipeline.tables import from_rows
from pipeline.values import EngineLimits


class ThisMachine(Datasheet):
    """Measures DRAM copies and disk transfers here; step times are the roofline of the GPU whose peaks are stated.

    No GPU is measured, so results stay uncalibrated. gpu: whose peak figures the YAML holds. folder: where the
    temporary file is written; its disk is the one measured. file_bytes: size of that file. budget_s: the most seconds
    spent in each direction of the disk.
    """

    gpu: str
    folder: str
    dram_block_bytes: tuple[Count, ...] = Field(min_length=2)
    dram_repeats: Count
    disk_block_bytes: tuple[Count, ...] = Field(min_length=2)
    file_bytes: Count
    budget_s: Positive

    @model_validator(mode="after")
    def _blocks_fit(self) -> ThisMachine:
        for size in self.disk_block_bytes:
            if size % ALIGNMENT_BYTES or size > self.file_bytes:
                raise ValueError(
                    f"hardware.source.disk_block_bytes: given {size}, expected multiples of {ALIGNMENT_BYTES} up to "
                    f"file_bytes ({self.file_bytes})"
                )
        return self

    def calibrate(self, hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
        """Measure DRAM and disk, and take step times from the datasheet. Raises InputError if the folder is no good."""
        found = super().calibrate(hardware, model, engine)
        writes, reads = disk_transfers(Path(self.folder), self.disk_block_bytes, self.file_bytes, self.budget_s)
        copies = copy_in_dram(self.dram_block_bytes, self.dram_repeats)
        fits = {("dram", "ssd"): writes, ("ssd", "dram"): reads, ("dram", "dram"): copies}
        rows = [row for row in links(hardware).to_pylist() if (row["source_tier"], row["target_tier"]) not in fits]
        rows += [_measured_row(hardware, tiers, moved) for tiers, moved in fits.items()]
        gpu = hardware.bf16_flops_per_s
        stated = f"roofline of {self.gpu}, no GPU was measured: {gpu.source}"
        count = Sourced(value=found.step_samples.num_rows, source=stated, as_of=gpu.as_of)
        table = constants(hardware, model, engine, [constant("datasheet_sample_count", "count", count)])
        return replace(found, constants=table, link_calibration=from_rows(LINK_CALIBRATION, rows))


def _measured_row(hardware: Hardware, tiers: tuple[str, str], moved: Transfers) -> dict[str, object]:
    fit: LineFit = fit_line(moved.moved_bytes, moved.time_s)
    who = f"measured by us on this {platform.system()} {platform.machine()} machine: {moved.how}"
    as_of = datetime.now(UTC).date().isoformat()
    stated = {"source": who, "as_of": as_of}
    link = Link(
        kind=f"{tiers[0]} to {tiers[1]}",
        count=1,
        bandwidth_bytes_per_s=Sourced(value=fit.bandwidth_bytes_per_s, **stated),
        latency_s=Sourced(value=fit.latency_s, **stated),
        descriptor_s=Sourced(value=0.0, **stated),
    )
    return link_row(hardware.name, tiers, link, fit.fit_error_ratio)
