"""`Tiers`: how big each tier is, for whom, and who shares it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.spec import Name, NonNegative, Positive, Spec

MOST_BYTES = 1e16
"""What no tier of an instance holds: a slip."""
Blocks = Annotated[int, Field(ge=0, strict=True)]
Lower = Literal["dram", "ssd", "remote"]


class Tiers(Spec):
    """KV capacity of the tiers, in bytes, in blocks, or as multiples of HBM's: one of the three.

    hbm_kv_bytes: of an instance, all its ranks together; null: what the engine leaves for KV, which is also the most.
    dram_bytes, ssd_bytes, remote_bytes: of an instance, of each of its ranks, or of all instances of a node together,
    as bytes_per says. blocks: KV blocks of an instance, HBM, DRAM, SSD and remote. shape: the same as multiples.
    shared_by: tiers that all instances of a node, or of the cluster, use as one; each brings its part.
    """

    name: Name
    hbm_kv_bytes: Positive | None = Field(le=MOST_BYTES)
    dram_bytes: NonNegative | None = Field(le=MOST_BYTES)
    ssd_bytes: NonNegative | None = Field(le=MOST_BYTES)
    remote_bytes: NonNegative | None = Field(le=MOST_BYTES)
    bytes_per: Literal["instance", "rank", "node"]
    blocks: tuple[Blocks, Blocks, Blocks, Blocks] | None
    shape: tuple[Positive, NonNegative, NonNegative, NonNegative] | None
    shared_by: dict[Lower, Literal["node", "cluster"]]

    @model_validator(mode="after")
    def _given_once(self) -> Tiers:
        sizes = (self.dram_bytes, self.ssd_bytes, self.remote_bytes)
        given = [size is not None for size in sizes]
        other = self.blocks is not None or self.shape is not None
        if (self.blocks is not None and self.shape is not None) or any(given) == other or any(given) != all(given):
            raise ValueError(
                f"tiers: given dram_bytes {sizes[0]}, ssd_bytes {sizes[1]}, remote_bytes {sizes[2]}, blocks "
                f"{self.blocks} and shape {self.shape}, expected all three bytes, or blocks, or a shape, and null for "
                "the others"
            )
        if self.blocks is not None and self.hbm_kv_bytes is not None:
            raise ValueError(f"tiers.hbm_kv_bytes: given {self.hbm_kv_bytes} beside blocks, expected null")
        return self

    def lower_bytes(self, hbm_kv_bytes: float, ranks: int, instances_per_node: float) -> tuple[float, float, float]:
        """KV bytes of one instance below HBM, which holds `hbm_kv_bytes`, where no blocks are given.

        Raises ValueError for a tier of an absurd size.
        """
        if self.shape is not None:
            unit = hbm_kv_bytes / self.shape[0]
            if unit * max(self.shape[1:]) > MOST_BYTES:
                raise ValueError(
                    f"tiers.shape: given {list(self.shape)}, which makes a tier of more than {MOST_BYTES:.0e} bytes"
                )
            return unit * self.shape[1], unit * self.shape[2], unit * self.shape[3]
        part = {"instance": 1.0, "rank": float(ranks), "node": 1 / instances_per_node}[self.bytes_per]
        return (self.dram_bytes or 0.0) * part, (self.ssd_bytes or 0.0) * part, (self.remote_bytes or 0.0) * part
