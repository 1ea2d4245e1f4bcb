"""Plain values of a scenario: engine limits, tier sizes, cluster, SLO, prices, load."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.model import Model
from pipeline.spec import Count, Name, NonNegative, OpenRatio, Positive, Sourced, Spec

TIERS = ("hbm", "dram", "ssd", "remote")
MOST_SHARE = 10.0
"""What no study of overload asks for: a slip, as 70 for 70 %."""
Role = Literal["prefill", "decode", "mixed"]


class EngineLimits(Spec):
    """What bounds a step of an engine: the range that step times must cover."""

    tensor_parallel: Count
    max_running: Count = Field(le=2**17)
    max_batched_tokens: Count = Field(le=2**24)


class Engine(EngineLimits):
    """Limits of one serving engine (an instance), as its operator sets them.

    scheduling: who is admitted first: who came first; the class of the lowest class_priority, which is preempted last
    too (vLLM's policy `priority`); or the shortest prompt. Among equals who came first. class_priority: by request
    class; 0 for one not named.
    """

    max_context_tokens: Count | None = None
    memory_utilisation: OpenRatio
    activation_bytes: NonNegative = Field(description="HBM kept for activations and buffers, per rank")
    kv_budget_tokens: Count | None = Field(None, description="KV capacity; null: what HBM leaves after weights")
    prefix_cache: bool
    async_scheduling: bool = Field(description="plan a step while the one before it runs")
    scheduling: Literal["fcfs", "priority", "shortest_first"] = "fcfs"
    class_priority: dict[str, Annotated[int, Field(strict=True)]] = Field(default_factory=dict)
    block_tokens: Count = Field(le=2**20, description="tokens of a KV block: what is copied between tiers in one piece")
    kv_layout: Literal["layers_apart", "layers_together"]

    @model_validator(mode="after")
    def _has_priorities(self) -> Engine:
        if self.scheduling == "priority" and not self.class_priority:
            raise ValueError(
                "engine.class_priority: given none, so that engine.scheduling=priority would change nothing; expected "
                "a number by request class, such as engine.class_priority={chat:0,batch:1}"
            )
        return self

    def longest_context_tokens(self, model: Model) -> int:
        """Longest prompt plus output that is served: the model's limit, or a lower one of the engine."""
        limit = self.max_context_tokens
        return model.max_context_tokens if limit is None else min(limit, model.max_context_tokens)

    def kv_pieces(self, model: Model, tokens: int) -> int:
        """Contiguous pieces that KV of `tokens` tokens is in on a rank: tensors of each layer apart, or together."""
        blocks = math.ceil(tokens / self.block_tokens)
        return blocks * (model.kv_tensors_per_layer * model.layers if self.kv_layout == "layers_apart" else 1)

    def kv_capacity_bytes(self, model: Model, hbm_bytes: float) -> float:
        """KV bytes one instance holds in HBM, counted once where ranks hold copies: what fits on each of its ranks.

        A rank has its budget of tokens, or utilisation x HBM - weights - activations. Raises ValueError when the
        weights, or they and the budget, do not fit.
        """
        ranks, weights = self.tensor_parallel, model.rank_weight_bytes(self.tensor_parallel)
        if self.kv_budget_tokens is not None:
            most = (hbm_bytes - weights) / model.kv_rank_bytes_per_token(ranks)
            if self.kv_budget_tokens > most:
                raise ValueError(
                    f"engine.kv_budget_tokens: given {self.kv_budget_tokens}, but beside the weights of {model.name} "
                    f"{ranks} rank(s) hold at most {max(int(most), 0)} tokens"
                )
            return self.kv_budget_tokens * model.kv_bytes_per_token
        free = self.memory_utilisation * hbm_bytes - self.activation_bytes
        if weights >= free:
            enough = [n for n in model.tensor_parallel_sizes if model.rank_weight_bytes(n) < free]
            raise ValueError(
                f"engine.tensor_parallel: given {ranks}, but the weights of {model.name} take "
                f"{ranks * weights:.3g} bytes and {ranks} rank(s) leave {ranks * free:.3g}; "
                + (f"at least {enough[0]} rank(s) are needed" if enough else "no number of ranks is enough")
            )
        return (free - weights) / model.kv_rank_share(ranks)


class Pool(Spec):
    """Instances with the same role in a cluster."""

    role: Role
    count: Count


class Cluster(Spec):
    """The pools of a cluster: either mixed instances only, or prefill and decode instances."""

    name: Name
    pools: tuple[Pool, ...]

    @model_validator(mode="after")
    def _roles_fit(self) -> Cluster:
        roles = {pool.role for pool in self.pools}
        if roles not in ({"mixed"}, {"prefill", "decode"}):
            raise ValueError(f"cluster.pools: given roles {sorted(roles)}, expected mixed alone, or prefill and decode")
        return self

    def count(self, role: Role) -> int:
        """Instances with `role`."""
        return sum(pool.count for pool in self.pools if pool.role == role)

    @property
    def instance_count(self) -> int:
        """All instances."""
        return sum(pool.count for pool in self.pools)


class Slo(Spec):
    """Service-level objective of a request: both must hold (TPOT is not judged for one-token outputs)."""

    name: Name
    ttft_ms: Positive
    tpot_ms: Positive


class Price(Spec):
    """Prices applied in SQL at the end; changing one re-runs no simulation."""

    name: Name
    gpu_usd_per_hour: dict[str, Sourced]
    hbm_usd_per_gb: Sourced
    dram_usd_per_gb: Sourced
    ssd_usd_per_gb: Sourced

    @model_validator(mode="after")
    def _no_gifts(self) -> Price:
        named = {f"gpu_usd_per_hour.{gpu}": price for gpu, price in self.gpu_usd_per_hour.items()}
        named |= {name: getattr(self, name) for name in ("hbm_usd_per_gb", "dram_usd_per_gb", "ssd_usd_per_gb")}
        for name, price in named.items():
            if price.value < 0:
                raise ValueError(f"price.{name}.value: given {price.value:g}, expected 0 or more")
        return self


ScaleBy = Literal["time", "sessions"]


class Load(Spec):
    """How hard the cluster is driven: a share of its own simulated capacity, or a rate.

    scale_by: what of an open-loop trace changes: its `time`, or the number of its `sessions` (or prefix groups), of
    which it can only use as many as it has. A capacity is always found by scaling time.
    """

    share_of_capacity_ratio: Positive | None = Field(None, le=MOST_SHARE)
    rate_per_s: Positive | None = None
    scale_by: ScaleBy

    @model_validator(mode="after")
    def _one_of(self) -> Load:
        if (self.share_of_capacity_ratio is None) == (self.rate_per_s is None):
            raise ValueError("load: give exactly one of share_of_capacity_ratio and rate_per_s")
        return self
