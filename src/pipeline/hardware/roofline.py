"""Roofline times of a step's operations from peak figures: the larger of arithmetic and memory traffic, nothing else.

Counts per operation, all layers, of one rank. Weights are read once; of experts those that the batch is expected to
touch (`Moe.touched_experts`). A query-key pair of a layer costs 4 x heads x head_dim FLOPs (two products). KV is read
once per prefill chunk or decoding request; sliding layers read their window. A latent (mla) is read whole by every
rank: decoding multiplies with it as it is (absorbed form), which costs 2 x heads x (2 kv_lora_rank + rope_head_dim) a
pair; prefill first expands cached latents to heads (2 x kv_lora_rank x heads x (nope_head_dim + head_dim) a token),
then costs 2 x heads x (nope_head_dim + rope_head_dim + head_dim) a pair: vllm/v1/attention/backends/mla/common.py. What
both do to new tokens is in the dense weights. Activations, normalisation, launches and the host are left out; the
arithmetic is at the peak of BF16 whatever the weights are stored in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.hardware.grid import Points
from pipeline.hardware.spec import Hardware
from pipeline.model import DTYPE_BYTES, Model
from pipeline.values import EngineLimits

Floats = NDArray[np.float64]


class StepTimes(NamedTuple):
    """Seconds of each operation at each of `Points`, all layers; collective is empty with one rank."""

    dense: Floats
    logits: Floats
    collective: Floats
    attention_prefill: Floats
    attention_decode: Floats


def roofline(hardware: Hardware, model: Model, engine: EngineLimits, points: Points) -> StepTimes:
    """Give the roofline time of every operation at `points`."""
    return StepTimes(
        dense_s(hardware, model, engine, points.tokens),
        logits_s(hardware, model, engine, points.sequences),
        collective_s(hardware, model, engine, points.tokens),
        prefill_s(hardware, model, engine, points.prefill_new, points.prefill_cached),
        decode_s(hardware, model, engine, points.decode_requests, points.decode_context),
    )


def _longer(hardware: Hardware, flops: Floats, moved_bytes: Floats) -> Floats:
    compute = flops / hardware.bf16_flops_per_s.value
    memory = moved_bytes / hardware.hbm_bytes_per_s.value
    return np.asarray(np.maximum(compute, memory))


def dense_s(hardware: Hardware, model: Model, engine: EngineLimits, tokens: NDArray[np.generic]) -> Floats:
    """Projections and feed-forward of `tokens` scheduled tokens, seconds."""
    count, ranks = np.asarray(tokens, np.float64), engine.tensor_parallel
    shared = model.shared_weights(ranks)
    met, moved_bytes = shared, np.full_like(count, shared * DTYPE_BYTES[model.dtype])
    if model.moe is not None:
        met += model.moe.experts_per_token * model.expert_weights / ranks
        moved_bytes += model.moe.touched_experts(count) * model.expert_bytes / ranks
    return _longer(hardware, 2 * met * count, moved_bytes)


def logits_s(hardware: Hardware, model: Model, engine: EngineLimits, sequences: NDArray[np.generic]) -> Floats:
    """Output projection of `sequences` sequences, seconds."""
    weights = model.hidden * model.vocabulary / engine.tensor_parallel
    count = np.asarray(sequences, np.float64)
    return _longer(hardware, 2 * weights * count, np.full_like(count, weights * DTYPE_BYTES["bfloat16"]))


def collective_s(hardware: Hardware, model: Model, engine: EngineLimits, tokens: NDArray[np.generic]) -> Floats:
    """Two ring all-reduces of the hidden state per layer, seconds; empty with one rank."""
    ranks = engine.tensor_parallel
    if ranks == 1:
        return np.zeros(0)
    moved = np.asarray(tokens, np.float64) * model.hidden * DTYPE_BYTES["bfloat16"] * 2 * (ranks - 1) / ranks
    link = hardware.gpu_link
    return np.asarray(2 * model.layers * (link.latency_s.value + moved / link.bandwidth_bytes_per_s.value))


def prefill_s(
    hardware: Hardware, model: Model, engine: EngineLimits, new: NDArray[np.generic], cached: NDArray[np.generic]
) -> Floats:
    """Attention of a chunk of `new` tokens over `cached` ones and itself (causal), seconds."""
    q, k, ranks = np.asarray(new, np.float64), np.asarray(cached, np.float64), engine.tensor_parallel
    width = 2 * model.head_dim * model.heads  # of queries and outputs
    flops = np.zeros_like(q)
    if model.mla is not None:
        width = model.heads * (model.mla.nope_head_dim + model.mla.rope_head_dim + model.head_dim)
        expanded = model.heads * (model.mla.nope_head_dim + model.head_dim)
        flops = 2 * model.layers * model.mla.kv_lora_rank * expanded * k
    flops = flops + 2 * width * _pairs(model, q, k)
    kv_bytes = model.kv_layer_bytes(ranks) * (model.layers * q + model.kept_tokens(k))
    return _longer(hardware, flops / ranks, kv_bytes + model.layers * width * q * DTYPE_BYTES["bfloat16"] / ranks)


def _pairs(model: Model, new: Floats, cached: Floats) -> Floats:
    """Query-key pairs of a chunk, over all layers; in a sliding layer a query sees at most a window."""
    every = new * (cached + new / 2)
    if model.sliding is None:
        return np.asarray(model.layers * every)
    window = model.sliding.window_tokens
    filling = np.clip(window - cached, 0, new)  # queries that see all before them
    windowed = filling * (cached + filling / 2) + (new - filling) * window
    return np.asarray((model.layers - model.sliding.layers) * every + model.sliding.layers * windowed)


def decode_s(
    hardware: Hardware, model: Model, engine: EngineLimits, requests: NDArray[np.generic], context: NDArray[np.generic]
) -> Floats:
    """Attention of `requests` requests, one new token each over `context` tokens, seconds."""
    tokens = np.asarray(requests, np.float64) * model.kept_tokens(np.asarray(context, np.float64))
    pair = 2 * model.head_dim if model.mla is None else 2 * model.mla.kv_lora_rank + model.mla.rope_head_dim
    flops = 2 * model.heads * pair * tokens / engine.tensor_parallel
    return _longer(hardware, flops, model.kv_layer_bytes(engine.tensor_parallel) * tokens)
