"""`Model`: the shape of a decoder-only transformer, and what follows from it: weights, KV, and the work of a token.

An architecture is a plain dense one with parts exchanged: attention over a latent (`mla`), layers that see a window
(`sliding`), a mixture of experts (`moe`). With one rank each function gives the whole model; with more, what one rank
of a tensor-parallel group holds. Norms, biases and the scales of quantised values are left out (under 1 %).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline.spec import Count, Name, Spec

DTYPE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int4": 0.5, "mxfp4": 17 / 32}
"""Bytes of a value; in mxfp4 32 values of 4 bits share a scale of 8 (OCP Microscaling Formats v1.0)."""
Dtype = Literal["bfloat16", "float16", "fp8", "int4"]
Whole = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
Numbers = NDArray[np.generic]
Floats = NDArray[np.float64]


class Mla(Spec):
    """Multi-head latent attention (arXiv:2405.04434): a layer keeps one latent and one rotary key for all heads.

    nope_head_dim, rope_head_dim: of queries and keys; those of values are the model's head_dim. q_lora_rank: null where
    queries come from the hidden state without a latent.
    """

    kv_lora_rank: Count
    q_lora_rank: Count | None
    nope_head_dim: Count
    rope_head_dim: Count


class Sliding(Spec):
    """So many `layers` see the last `window_tokens` tokens alone; the others see all."""

    window_tokens: Count
    layers: Count


class Moe(Spec):
    """Feed-forward of all but the first `dense_layers` layers: a router picks `experts_per_token` of `experts`.

    shared_experts see every token. ffn: of an expert. dtype: of the routed experts' weights; null: the model's.
    """

    experts: Count
    experts_per_token: Count
    ffn: Count
    shared_experts: Whole
    dense_layers: Whole
    dtype: Dtype | Literal["mxfp4"] | None

    @model_validator(mode="after")
    def _picks_fit(self) -> Moe:
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"model.moe.experts_per_token: given {self.experts_per_token}, expected at most {self.experts}"
            )
        return self

    def touched_experts(self, tokens: Numbers) -> Floats:
        """Expected number of distinct experts that a layer reads for `tokens` tokens: E (1 - (1 - k/E)^tokens).

        As if every token chose its k of E experts at random; routers that repeat themselves touch fewer.
        """
        missed = (1 - self.experts_per_token / self.experts) ** np.asarray(tokens, np.float64)
        return np.asarray(self.experts * (1 - missed))


class Model(Spec):
    """Shape of a decoder-only transformer, with the source of the numbers.

    ffn: of a dense layer. head_dim: with mla that of values. dtype: of all weights but those of experts with their own.
    """

    name: Name
    architecture: str = Field(description="class name in the model's public configuration, e.g. LlamaForCausalLM")
    hidden: Count
    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    vocabulary: Count
    max_context_tokens: Count
    tied_embeddings: bool
    dtype: Dtype
    kv_dtype: Dtype
    source: str
    as_of: str
    mla: Mla | None = None
    sliding: Sliding | None = None
    moe: Moe | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Model:
        if self.heads % self.kv_heads:
            valid = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise ValueError(
                f"model.kv_heads: given {self.kv_heads}, but {self.heads} heads share KV heads in equal groups; "
                f"allowed: {', '.join(map(str, valid))}"
            )
        if self.mla is not None and self.kv_heads != self.heads:
            raise ValueError(
                f"model.kv_heads: given {self.kv_heads}, expected {self.heads}: with mla each head has keys"
            )
        if self.sliding is not None and self.sliding.layers > self.layers:
            raise ValueError(f"model.sliding.layers: given {self.sliding.layers}, expected at most {self.layers}")
        if self.moe is not None and self.moe.dense_layers >= self.layers:
            raise ValueError(f"model.moe.dense_layers: given {self.moe.dense_layers}, expected under {self.layers}")
        return self

    @property
    def tensor_parallel_sizes(self) -> list[int]:
        """Numbers of ranks that share the heads evenly.

        KV heads are divided while there is one for each rank, then copied, each to as many ranks, as vLLM does
        (vllm/model_executor/models/llama.py, LlamaAttention).
        """
        shared = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
        return [n for n in shared if self.kv_heads % n == 0 or n % self.kv_heads == 0]

    def check_tensor_parallel(self, tensor_parallel: int) -> None:
        """Raise ValueError, naming the valid sizes, unless the heads divide evenly over the ranks."""
        if tensor_parallel not in self.tensor_parallel_sizes:
            raise ValueError(
                f"engine.tensor_parallel: given {tensor_parallel}, but {self.name} has {self.heads} heads and "
                f"{self.kv_heads} KV heads; allowed: {', '.join(map(str, self.tensor_parallel_sizes))}"
            )

    @property
    def expert_weights(self) -> int:
        """Weights of one routed expert in every layer that has some, over all ranks; 0 without experts."""
        return 0 if self.moe is None else (self.layers - self.moe.dense_layers) * 3 * self.hidden * self.moe.ffn

    def shared_weights(self, ranks: int) -> float:
        """Weights that every token meets, but for embeddings: attention, dense layers, shared experts, routers.

        Routers, projections into latents, and KV heads that outnumbered ranks copy, are whole on several ranks.
        """
        dense = self.layers if self.moe is None else self.moe.dense_layers
        count = self.layers * self._attention_weights(ranks) + dense * 3 * self.hidden * self.ffn / ranks
        if self.moe is None:
            return count
        router = (self.layers - dense) * self.hidden * self.moe.experts
        return count + router + self.moe.shared_experts * self.expert_weights / ranks

    def _attention_weights(self, ranks: int) -> int:
        """Projections of one layer."""
        heads = self.heads // ranks
        if self.mla is None:
            return 2 * self.hidden * self.head_dim * (heads + self._kv_heads(ranks))
        query_dim = heads * (self.mla.nope_head_dim + self.mla.rope_head_dim)
        lora = self.mla.q_lora_rank
        query = self.hidden * query_dim if lora is None else lora * (self.hidden + query_dim)
        latent = self.hidden * (self.mla.kv_lora_rank + self.mla.rope_head_dim)
        keys_values = self.mla.kv_lora_rank * heads * (self.mla.nope_head_dim + self.head_dim)
        return query + latent + keys_values + heads * self.head_dim * self.hidden

    def _kv_heads(self, ranks: int) -> int:
        return math.ceil(self.kv_heads / ranks)

    @property
    def parameters_count(self) -> int:
        """Weights of the whole model."""
        experts = 0 if self.moe is None else self.moe.experts * self.expert_weights
        embeddings = self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)
        return int(self.shared_weights(1)) + experts + embeddings

    @property
    def active_parameters_count(self) -> int:
        """Weights that one token is multiplied with: of the experts its own, of the embeddings the output alone."""
        experts = 0 if self.moe is None else self.moe.experts_per_token * self.expert_weights
        return int(self.shared_weights(1)) + experts + self.vocabulary * self.hidden

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights, each counted once."""
        return self.rank_weight_bytes(1)

    @property
    def expert_bytes(self) -> float:
        """Bytes of one routed expert in every layer that has some, over all ranks."""
        own = None if self.moe is None else self.moe.dtype
        return self.expert_weights * DTYPE_BYTES[own or self.dtype]

    def rank_weight_bytes(self, ranks: int) -> float:
        """Bytes of the weights on one rank. Experts are cut across ranks, as vLLM does without expert parallelism."""
        experts = 0.0 if self.moe is None else self.moe.experts * self.expert_bytes
        embeddings = self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)
        shared = self.shared_weights(ranks) + embeddings / ranks
        return shared * DTYPE_BYTES[self.dtype] + experts / ranks

    def kv_layer_bytes(self, ranks: int) -> float:
        """KV bytes of one token in one layer on one rank: keys and values of its heads, or the latent, whole."""
        if self.mla is None:
            values = 2 * self._kv_heads(ranks) * self.head_dim
        else:
            values = self.mla.kv_lora_rank + self.mla.rope_head_dim
        return values * DTYPE_BYTES[self.kv_dtype]

    @property
    def kv_tensors_per_layer(self) -> int:
        """Tensors that a layer's KV is in: keys and values, or the latent."""
        return 2 if self.mla is None else 1

    @property
    def kv_bytes_per_token(self) -> float:
        """KV bytes of one token over all layers, each counted once, however many ranks hold a copy."""
        return self.layers * self.kv_layer_bytes(1)

    def kv_rank_bytes_per_token(self, tensor_parallel: int) -> float:
        """KV bytes of one token over all layers that one rank stores."""
        return self.layers * self.kv_layer_bytes(tensor_parallel)

    def kv_rank_share(self, tensor_parallel: int) -> float:
        """Share of a token's KV that one rank stores: 1 / tensor_parallel, or more where ranks hold copies."""
        return self.kv_rank_bytes_per_token(tensor_parallel) / self.kv_bytes_per_token

    def kept_tokens(self, context_tokens: Any, step_tokens: int = 0) -> Any:
        """Sum over layers of the tokens of a context (a number or an array) that are kept, and that a next one sees.

        Sliding layers keep their window, and beside it step_tokens of a step, as vLLM's hybrid KV cache manager
        reserves them for its largest step (vllm/v1/kv_cache_interface.py, SlidingWindowSpec).
        """
        if self.sliding is None:
            return self.layers * context_tokens
        windowed = np.minimum(context_tokens, self.sliding.window_tokens + step_tokens)
        return (self.layers - self.sliding.layers) * context_tokens + self.sliding.layers * windowed

    def kv_bytes(self, context_tokens: float, step_tokens: int = 0) -> float:
        """KV bytes of a request of so many tokens where sliding layers keep their window alone, each counted once."""
        return float(self.kept_tokens(context_tokens, step_tokens) * self.kv_layer_bytes(1))
