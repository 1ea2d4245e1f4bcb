"""`Hardware`: peak figures, links and the source of step times of one machine, checked against physical limits."""

from __future__ import annotations

from pydantic import model_validator

from pipeline.hardware.base import CalibrationSource
from pipeline.model import Model
from pipeline.spec import Count, Sourced, Spec


class Link(Spec):
    """One direction of a link: `count` parallel units (drives, ports) of a `kind` whose limit is known."""

    kind: str
    count: Count
    bandwidth_bytes_per_s: Sourced
    latency_s: Sourced
    descriptor_s: Sourced


class ChipLimit(Spec):
    """The most that a chip does: dense BF16, no sparsity."""

    bf16_flops_per_s: Sourced
    hbm_bytes_per_s: Sourced


class Limits(Spec):
    """Physical limits by kind of link (one way, per unit) and by chip."""

    link_bytes_per_s: dict[str, Sourced]
    chips: dict[str, ChipLimit]


class Shared(Spec):
    """What links have in common, in bytes per second; null where it does not bind, or nobody knows.

    dram_link_both_ways: a GPU's link to DRAM in both directions together. switch: the links of gpus_per_switch GPUs
    together, each way. host_dram: the DRAM of a node, reads and writes. pool: a remote pool, for all instances.
    """

    dram_link_both_ways_bytes_per_s: Sourced | None
    switch_bytes_per_s: Sourced | None
    gpus_per_switch: Count
    host_dram_bytes_per_s: Sourced | None
    pool_bytes_per_s: Sourced | None

    @model_validator(mode="after")
    def _positive(self) -> Shared:
        for name in type(self).model_fields:
            given = getattr(self, name)
            if isinstance(given, Sourced):
                _positive(f"hardware.shared.{name}", given.value)
        return self


class Hardware(Spec):
    """One GPU in its node. Peak figures are per GPU; dram_link, gpu_link and handoff_link per GPU, ssd links per node.

    dram_link: HBM <-> DRAM, each way; gpu_link: between the GPUs of a node, for collectives; handoff_link: between
    instances; remote_link: from DRAM to a remote pool, per GPU, null: as handoff_link. A figure over the limit of its
    chip or kind of link is refused.
    """

    name: str
    chip: str
    bf16_flops_per_s: Sourced
    hbm_bytes: Sourced
    hbm_bytes_per_s: Sourced
    power_watts: Sourced
    gpus_per_node: Count
    dram_link: Link
    ssd_read_link: Link
    ssd_write_link: Link
    gpu_link: Link
    handoff_link: Link
    remote_link: Link | None
    shared: Shared
    limits: Limits
    source: CalibrationSource

    @property
    def links(self) -> dict[str, Link]:
        """Every link by the name of its field."""
        names = ("dram_link", "ssd_read_link", "ssd_write_link", "gpu_link", "handoff_link")
        return {name: getattr(self, name) for name in names} | {"remote_link": self.remote_link or self.handoff_link}

    def free_hbm_bytes(self, model: Model, tensor_parallel: int) -> float:
        """HBM that the weights leave on each rank: the most that KV can ever take there."""
        return self.hbm_bytes.value - model.rank_weight_bytes(tensor_parallel)

    @model_validator(mode="after")
    def _within_limits(self) -> Hardware:
        if self.chip not in self.limits.chips:
            known = ", ".join(self.limits.chips)
            raise ValueError(f"hardware.chip: given {self.chip!r}, expected one of {known} (hardware.limits.chips)")
        for name in ("bf16_flops_per_s", "hbm_bytes", "hbm_bytes_per_s", "power_watts"):
            _positive(f"hardware.{name}", getattr(self, name).value)
        chip = self.limits.chips[self.chip]
        _at_most(
            "bf16_flops_per_s",
            self.bf16_flops_per_s,
            chip.bf16_flops_per_s,
            f"{self.chip} does",
            "FLOP/s dense, without sparsity",
        )
        _at_most("hbm_bytes_per_s", self.hbm_bytes_per_s, chip.hbm_bytes_per_s, f"{self.chip} reads", "bytes/s")
        for name, link in self.links.items():
            self._check_link(f"hardware.{name}", link)
        return self

    def _check_link(self, where: str, link: Link) -> None:
        if link.kind not in self.limits.link_bytes_per_s:
            known = ", ".join(self.limits.link_bytes_per_s)
            raise ValueError(
                f"{where}.kind: given {link.kind!r}, expected one of {known} (hardware.limits.link_bytes_per_s)"
            )
        _positive(f"{where}.bandwidth_bytes_per_s", link.bandwidth_bytes_per_s.value)
        for name in ("latency_s", "descriptor_s"):
            value = getattr(link, name).value
            if value < 0:
                raise ValueError(f"{where}.{name}: given {value:g}, expected 0 s or more")
        limit = link.count * self.limits.link_bytes_per_s[link.kind].value
        if link.bandwidth_bytes_per_s.value > limit:
            units = link.kind if link.count == 1 else f"{link.count} x {link.kind}"
            carries = "carries" if link.count == 1 else "carry"
            raise ValueError(
                f"{where}.bandwidth_bytes_per_s: given {link.bandwidth_bytes_per_s.value:.3g}, but {units} {carries} "
                f"at most {limit:.3g} bytes/s one way"
            )


def _positive(where: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{where}: given {value:g}, expected more than 0")


def _at_most(name: str, given: Sourced, limit: Sourced, who: str, unit: str) -> None:
    if given.value > limit.value:
        most = f"at most {limit.value:.4g} {unit} ({limit.source})"
        raise ValueError(f"hardware.{name}: given {given.value:.4g}, but {who} {most}")
