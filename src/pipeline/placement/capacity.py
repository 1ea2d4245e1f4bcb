"""What the tiers hold: bytes, blocks, tokens and sessions, per instance, per rank and per node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.model import Model
from pipeline.placement.tiers import Tiers
from pipeline.spec import InputError
from pipeline.values import TIERS, Engine

SLACK = 1e-6
FIELDS = ("tiers.hbm_kv_bytes", "tiers.dram_bytes", "tiers.ssd_bytes", "tiers.remote_bytes")


@dataclass(frozen=True)
class TierCapacity:
    """One tier of one instance; an instance is `tensor_parallel` ranks, one GPU each.

    block_count, tokens, session_count and capacity_bytes are of the whole instance, in whole blocks, each counted once.
    rank_bytes is what a setting per rank or worker has to say, node_bytes what all instances of a node take. In HBM
    they hold every copy: a rank has its heads of every block, and all of a latent, or of heads that ranks outnumber.
    Below HBM a block is there once, and each rank has its share.
    """

    tier: str
    block_count: int
    tokens: int
    session_count: float
    capacity_bytes: float
    rank_bytes: float
    node_bytes: float


def block_bytes(model: Model, block_tokens: int) -> float:
    """KV bytes of a block, over all layers, each counted once however many ranks hold a copy."""
    return block_tokens * model.kv_bytes_per_token


def instances_per_node(tensor_parallel: int, gpus_per_node: int) -> float:
    """Instances that have all their ranks in a node, or the share of an instance that a node holds."""
    return gpus_per_node // tensor_parallel or gpus_per_node / tensor_parallel


def capacity_blocks(
    tiers: Tiers, engine: Engine, model: Model, hbm_bytes: float, gpus_per_node: int, block_tokens: int
) -> NDArray[np.int64]:
    """Whole blocks that one instance holds in each tier, or brings to one that is shared, (4,) as TIERS.

    hbm_bytes: HBM of one GPU. Raises InputError when the weights do not fit, when more HBM is asked for than they
    leave, or where a tier of some bytes holds no block.
    """
    unit, ranks = block_bytes(model, block_tokens), engine.tensor_parallel
    try:
        left = engine.kv_capacity_bytes(model, hbm_bytes)
        if tiers.blocks is not None:
            by_tier = tuple(count * unit for count in tiers.blocks)
        else:
            hbm = left if tiers.hbm_kv_bytes is None else tiers.hbm_kv_bytes
            by_tier = (hbm, *tiers.lower_bytes(hbm, ranks, instances_per_node(ranks, gpus_per_node)))
    except ValueError as exc:
        raise InputError(str(exc)) from exc
    field = FIELDS[0] if tiers.blocks is None else "tiers.blocks.0"
    if by_tier[0] > left * (1 + SLACK):
        raise InputError(f"{field}: given {by_tier[0]:.6g} bytes, but the engine leaves {left:.6g} bytes for KV")
    # A millionth of a block of slack: a size that was computed as n blocks must not become n - 1 by rounding.
    blocks = np.array([int(capacity / unit + SLACK) for capacity in by_tier], np.int64)
    for name, capacity, count in zip(FIELDS, by_tier, blocks, strict=True):
        if count == 0 and (capacity > 0 or name == FIELDS[0]):
            allowed = f"at least {unit:.6g}" if name == FIELDS[0] else f"0 or at least {unit:.6g}"
            raise InputError(
                f"{name}: given {capacity:.6g} bytes for an instance, which hold no block of {block_tokens} tokens of "
                f"{model.name}; allowed: {allowed}"
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
    instances = instances_per_node(tensor_parallel, gpus_per_node)
    copies = [tensor_parallel * model.kv_rank_share(tensor_parallel) if name == TIERS[0] else 1.0 for name in TIERS]
    return [
        TierCapacity(
            tier=name,
            block_count=int(count),
            tokens=int(count) * block_tokens,
            session_count=int(count) * block_tokens / session_tokens,
            capacity_bytes=int(count) * unit,
            rank_bytes=int(count) * unit * held / tensor_parallel,
            node_bytes=int(count) * unit * held * instances,
        )
        for name, count, held in zip(TIERS, blocks, copies, strict=True)
    ]


def kv_words(model: Model, engine: Engine, hbm: TierCapacity, session_tokens: float) -> list[str]:
    """Say what a token takes, and, where layers slide, what HBM would hold with vLLM's hybrid KV cache manager.

    That is also said as vLLM logs it: in sequences of the longest context, with room for a step's tokens. vLLM turns it
    off for KV connectors that do not support it, as LMCacheConnectorV1, and before 0.23 for all (vllm/config/vllm.py,
    pull request 41847). Then all layers keep all tokens, which is what is simulated.
    """
    ranks, longest = engine.tensor_parallel, engine.longest_context_tokens(model)
    copies = ranks * model.kv_rank_share(ranks)
    told = [
        f"KV of {model.name} in {model.kv_dtype}: {model.kv_bytes_per_token:,.0f} bytes a token, "
        f"{model.kv_rank_bytes_per_token(ranks):,.0f} on each of {ranks} rank(s)"
        + (f"; the ranks' HBM holds {copies:g} copies, the tiers below one" if copies > 1 else "")
    ]
    if model.sliding is not None:
        rested, logged = (
            hbm.capacity_bytes / model.kv_bytes(tokens, step) * tokens
            for tokens, step in ((session_tokens, 0), (longest, engine.max_batched_tokens))
        )
        told.append(
            f"with vLLM's hybrid KV cache manager {hbm.tier} would hold {rested:,.0f} tokens in such sessions, and "
            f"vLLM log {logged:,.0f} (sequences of {longest:,}, steps of {engine.max_batched_tokens:,}): "
            f"{model.sliding.layers} of {model.layers} layers keep {model.sliding.window_tokens} tokens; simulated is "
            f"{hbm.tokens:,}, all layers keep all, as with a KV connector that does not support it"
        )
    return told
