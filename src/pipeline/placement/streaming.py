"""`Streaming`: KV of running requests of which HBM holds a part only, and nothing is kept for other requests."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import model_validator

from pipeline.spec import Ratio, Spec
from pipeline.values import Cluster


class Streaming(Spec):
    """Where the KV of a running request lies, and what a step moves of it.

    hbm_ratio, dram_ratio: share of its tokens whose KV is in HBM, and in DRAM. read_ratio: share that a step which
    decodes a token reads from DRAM; with what is in HBM, these are the tokens that it attends to. A chunk of a prompt
    attends to all before it, and reads what DRAM has of it. What is computed is written to DRAM by its share.
    overlaps: whether reading, writing and computing go on side by side, so that the longest of them is the step's time;
    else it is their sum.
    """

    hbm_ratio: Ratio
    dram_ratio: Ratio
    read_ratio: Ratio
    overlaps: bool

    @model_validator(mode="after")
    def _is_somewhere(self) -> Streaming:
        if self.read_ratio > self.dram_ratio or not 0 < self.attended_ratio <= 1:
            raise ValueError(
                f"placement.streaming: given hbm_ratio {self.hbm_ratio:g}, dram_ratio {self.dram_ratio:g}, read_ratio "
                f"{self.read_ratio:g}; expected read_ratio up to dram_ratio, and with hbm_ratio more than 0, 1 at most"
            )
        return self

    @property
    def attended_ratio(self) -> float:
        """Share of the tokens that attention of decoding is over."""
        return self.hbm_ratio + self.read_ratio

    @property
    def ratios(self) -> tuple[float, float, float, float]:
        """Share of a request's tokens that each tier holds."""
        return self.hbm_ratio, self.dram_ratio, 0.0, 0.0

    def check_cluster(self, cluster: Cluster) -> None:
        """Raise ValueError for prefill and decode at different instances."""
        if cluster.count("mixed") == 0:
            raise ValueError(
                f"cluster: given {cluster.name}, prefill and decode apart, with placement.streaming, which hands no KV "
                "over; expected mixed instances"
            )

    def held_blocks(self, capacity_blocks: Sequence[int]) -> int:
        """Blocks of running requests that tiers of (4,) blocks hold by their shares.

        Raises ValueError where a tier that is to hold some has none.
        """
        # A millionth of slack, so that a fifth of 10 blocks is 2.
        held = min(
            int(blocks / ratio + 1e-6) for blocks, ratio in zip(capacity_blocks, self.ratios, strict=True) if ratio > 0
        )
        if held == 0:
            raise ValueError(
                f"tiers: given {list(capacity_blocks)} KV blocks of HBM, DRAM, SSD and remote, but placement.streaming "
                f"puts {self.hbm_ratio:g} of all tokens in HBM and {self.dram_ratio:g} in DRAM; expected blocks there"
            )
        return held
