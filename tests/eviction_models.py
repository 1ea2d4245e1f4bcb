"""Plain Python models of the eviction policies: slow, written from the definitions; no code of the package is used."""

from __future__ import annotations

from eviction_queue_models import FifoModel, LfuModel, LruModel, PolicyModel, S3FifoModel, SieveModel
from eviction_score_models import (
    BeladyModel,
    Chains,
    EwmaModel,
    LeafAwareLruModel,
    LmcacheCostAwareModel,
    PredictedReuseModel,
)
from eviction_segment_models import ArcModel, RandomModel, SlruModel

TOLD_THE_CHAINS = {
    "belady": BeladyModel,
    "leaf_aware_lru": LeafAwareLruModel,
    "lmcache_cost_aware": LmcacheCostAwareModel,
}
MODELS = {
    "arc": ArcModel,
    "ewma": EwmaModel,
    "fifo": FifoModel,
    "lfu": LfuModel,
    "lru": LruModel,
    "predicted_reuse": PredictedReuseModel,
    "random": RandomModel,
    "s3fifo": S3FifoModel,
    "sieve": SieveModel,
    "slru": SlruModel,
} | TOLD_THE_CHAINS


def make_model(name: str, capacity: int, chains: Chains) -> PolicyModel:
    """An empty model of a tier; chains: what the policy may know of the trace, if it asks."""
    if name in TOLD_THE_CHAINS:
        return TOLD_THE_CHAINS[name](capacity, chains)
    return MODELS[name](capacity)
