"""meta.json of a case: what served the run, and within which limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.spec import Count, InputError, Name, Spec

Flag = Annotated[bool, Field(strict=True)]
NOT_RECORDED = "not recorded"
"""How a text begins that stands for a value that was not recorded, beside null."""
AMPLE_KV_BLOCKS = 40_000
"""KV blocks where a run did not record them, since they never bound it."""


class Recorded(Spec):
    """A part of meta.json; what else is in it is of no effect here."""

    model_config = ConfigDict(extra="ignore")


class EngineMeta(Recorded):
    """Limits of one engine, by the names of vLLM's arguments."""

    max_num_seqs: Count = Field(le=2**17)
    max_num_batched_tokens: Count = Field(le=2**20)
    enable_expert_parallel: Flag


class Shape(Recorded):
    """Shape of the model, by the names of its public configuration; null for what it does not have."""

    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count | None = None
    vocab_size: Count
    intermediate_size: Count | None = None
    num_experts: Count | None
    num_experts_per_tok: Count | None = None
    moe_intermediate_size: Count | None = None

    @model_validator(mode="after")
    def _is_dense_or_of_experts(self) -> Shape:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads: given {self.num_key_value_heads}, expected a divisor of the "
                f"{self.num_attention_heads} attention heads"
            )
        of_experts = {name: getattr(self, name) for name in ("num_experts_per_tok", "moe_intermediate_size")}
        if self.num_experts is None:
            given = [f"{name} {value}" for name, value in of_experts.items() if value is not None]
            if given:
                raise ValueError(f"num_experts: given null beside {given[0]}, expected a count")
            if self.intermediate_size is None:
                raise ValueError("intermediate_size: given null without experts, expected a count")
            return self
        for name, value in of_experts.items():
            if value is None:
                raise ValueError(f"{name}: given null beside num_experts {self.num_experts}, expected a count")
        if of_experts["num_experts_per_tok"] > self.num_experts:
            raise ValueError(
                f"num_experts_per_tok: given {self.num_experts_per_tok}, expected at most num_experts, "
                f"{self.num_experts}"
            )
        return self


class Meta(Recorded):
    """One run. num_gpu_blocks: of one engine; it, async_scheduling and scheduler_reserve_full_isl (a request is
    admitted once its whole prompt fits): null where it was not recorded.
    """

    source_repo: Name
    model: Name
    hardware: Name
    vllm_version: Name
    engine: EngineMeta
    model_shape: Shape
    tensor_parallel: Count
    data_parallel: Count = Field(le=1024)
    block_size: Count = Field(le=2**20)
    num_gpu_blocks: Annotated[int, Field(gt=0, le=2**28, strict=True)] | None
    skew_fit_enabled: Flag
    async_scheduling: Flag | None
    enable_prefix_caching: Flag
    scheduler_reserve_full_isl: Flag | None = None

    @field_validator("async_scheduling", "scheduler_reserve_full_isl", mode="before")
    @classmethod
    def _in_words(cls, value: Any) -> Any:
        return None if isinstance(value, str) and value.startswith(NOT_RECORDED) else value

    @model_validator(mode="after")
    def _ranks_have_a_share(self) -> Meta:
        heads, experts = self.model_shape.num_attention_heads, self.model_shape.num_experts
        if heads % self.tensor_parallel:
            raise ValueError(f"tensor_parallel: given {self.tensor_parallel}, expected a divisor of the {heads} heads")
        if experts is not None and self.expert_ranks > experts:
            raise ValueError(
                f"model_shape.num_experts: given {experts}, expected one or more for each of the {self.expert_ranks} "
                "ranks of tensor x data parallelism, as engine.enable_expert_parallel is true"
            )
        return self

    @property
    def expert_ranks(self) -> int:
        """Ranks over which whole experts are spread."""
        return self.tensor_parallel * self.data_parallel if self.engine.enable_expert_parallel else 1

    @property
    def kv_blocks(self) -> int:
        """KV blocks of one engine."""
        return AMPLE_KV_BLOCKS if self.num_gpu_blocks is None else self.num_gpu_blocks

    @property
    def assumed(self) -> tuple[str, ...]:
        """What is assumed of the engine, in words."""
        found = []
        if self.num_gpu_blocks is None:
            found.append(f"KV blocks ({AMPLE_KV_BLOCKS} assumed: not recorded)")
        if self.async_scheduling is None:
            found.append("async scheduling (on assumed: not recorded)")
        if not self.scheduler_reserve_full_isl:
            why = "not recorded" if self.scheduler_reserve_full_isl is None else "the run's engine did not"
            found.append(f"admission (waits for the whole prompt to fit: {why})")
        if self.data_parallel > 1:
            found.append("router (least 4 x waiting + running of 100 ms ago)")
        return tuple(found)


def read_meta(path: Path) -> Meta:
    """Read meta.json. Raises InputError naming each key that is missing or wrong."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as exc:
        raise InputError(f"{path}: expected a readable JSON file ({exc})") from exc
    if not isinstance(content, dict):
        raise InputError(f"{path}: given {type(content).__name__}, expected an object with a key per value")
    try:
        return Meta.model_validate(content)
    except ValidationError as exc:
        missing = [_key(error) for error in exc.errors() if error["type"] == "missing"]
        wrong = [_told(error) for error in exc.errors() if error["type"] != "missing"]
        parts = ([f"missing {', '.join(missing)}"] if missing else []) + wrong
        raise InputError(f"{path}: {'; '.join(parts)}") from exc


def _key(error: Any) -> str:
    return ".".join(map(str, error["loc"]))


def _told(error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":  # a check over several keys, which names them and what was given itself
        return ".".join([*map(str, error["loc"]), str(message)])
    if error["type"] == "model_type":
        return f"{_key(error)}: given {error['input']!r}, expected an object with a key per value"
    return f"{_key(error)}: given {error['input']!r}: {message}"
