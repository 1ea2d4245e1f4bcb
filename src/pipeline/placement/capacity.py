"""What the tiers hold: bytes, blocks, tokens and sessions, per instance, per rank and per node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.spec import InputError
from pipeline.values import TIERS, Engine, Model, Tiers

FIELDS = ("tiers.hbm_kv_bytes", "tiers.dram_bytes", "tiers.ssd_bytes", "tiers.remote_bytes")


@dataclass(frozen=True)
class TierCapacity:
    """One tier of one instance; an instance is `tensor_parallel` ranks, one GPU each.

    block_count, tokens, session_count and capacity_bytes are of the whole instance, in whole blocks. A rank holds its
    heads of every block, so rank_bytes is what a setting per rank or worker has to say; node_bytes is what all
    instances of a node take.
    """

    tier: str
    block_count: int
    tokens: int
    session_count: float
    capacity_bytes: float
    rank_bytes: float
    node_bytes: float


def block_bytes(model: Model, block_tokens: int) -> float:
    """KV bytes of a block, over all layers and ranks."""
    return block_tokens * model.kv_bytes_per_token


def capacity_blocks(
    tiers: Tiers, engine: Engine, model: Model, hbm_bytes: float, block_tokens: int
) -> NDArray[np.int64]:
    """Whole blocks that one instance holds in each tier, (4,) as TIERS.

    hbm_bytes: HBM of one GPU. Raises InputError when the weights do not fit, or a tier of some bytes holds no block.
    """
    try:
        by_tier = tiers.capacity_bytes(engine.kv_capacity_bytes(model, hbm_bytes))
    except ValueError as exc:
        raise InputError(str(exc)) from exc
    unit = block_bytes(model, block_tokens)
    # A millionth of a block of slack: a size that was computed as n blocks must not become n - 1 by rounding.
    blocks = np.array([int(capacity / unit + 1e-6) for capacity in by_tier], np.int64)
    for field, capacity, count in zip(FIELDS, by_tier, blocks, strict=True):
        if count == 0 and (capacity > 0 or field == FIELDS[0]):
            allowed = f"at least {unit:.6g}" if field == FIELDS[0] else f"0 or at least {unit:.6g}"
            raise InputError(
                f"{field}: given {capacity:.6g} bytes, which hold no block of {block_tokens} tokens of {model.name}; "
                f"allowed: {allowed}"
            )
    return blocks


def capacity_table(
    blocks: NDArray[np.int64],
    model: Model,
    block_tokens: int,
    tensor_parallel: int,
    gpus_per_node: int,
    session_tokens: float,
) -> list[TierCapacity]:
    """Say what `blocks` (4,) of one instance are in other units; session_tokens: KV that a session keeps, on average.

    A node holds as many instances as have all their ranks in it; an instance that spans nodes counts by its share.
    """
    unit = block_bytes(model, block_tokens)
    instances = gpus_per_node // tensor_parallel or gpus_per_node / tensor_parallel
    return [
        TierCapacity(
            tier=name,
            block_count=int(count),
            tokens=int(count) * block_tokens,
            session_count=int(count) * block_tokens / session_tokens,
            capacity_bytes=int(count) * unit,
            rank_bytes=int(count) * unit / tensor_parallel,
            node_bytes=int(count) * unit * instances,
        )
        for name, count in zip(TIERS, blocks, strict=True)
    ]
