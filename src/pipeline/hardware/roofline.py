"""Roofline times of a step's operations from peak figures: the larger of arithmetic and memory traffic, nothing else.

Counts per operation, all layers, per rank (p ranks): weights are read once; a query-key pair costs 4 x heads x head_dim
FLOPs (two products); KV is read once per prefill chunk or decoding request. Activations, normalisation, launches and
the host are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.hardware.grid import Points
from pipeline.hardware.spec import Hardware
from pipeline.values import DTYPE_BYTES, EngineLimits, Model

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


def _longer(hardware: Hardware, engine: EngineLimits, flops: Floats, moved_bytes: Floats) -> Floats:
    compute = flops / hardware.bf16_flops_per_s.value
    memory = moved_bytes / hardware.hbm_bytes_per_s.value
    return np.asarray(np.maximum(compute, memory) / engine.tensor_parallel)


def dense_s(hardware: Hardware, model: Model, engine: EngineLimits, tokens: NDArray[np.generic]) -> Floats:
    """Projections and feed-forward of `tokens` scheduled tokens, seconds."""
    attention = model.hidden * model.head_dim * 2 * (model.heads + model.kv_heads)
    weights = model.layers * (attention + 3 * model.hidden * model.ffn)
    count = np.asarray(tokens, np.float64)
    return _longer(hardware, engine, 2 * weights * count, np.full_like(count, weights * DTYPE_BYTES[model.dtype]))


def logits_s(hardware: Hardware, model: Model, engine: EngineLimits, sequences: NDArray[np.generic]) -> Floats:
    """Output projection of `sequences` sequences, seconds."""
    weights = model.hidden * model.vocabulary
    count = np.asarray(sequences, np.float64)
    return _longer(hardware, engine, 2 * weights * count, np.full_like(count, weights * DTYPE_BYTES["bfloat16"]))


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
    q, k = np.asarray(new, np.float64), np.asarray(cached, np.float64)
    flops = 4 * model.layers * model.heads * model.head_dim * q * (k + q / 2)
    queries = 2 * model.layers * model.heads * model.head_dim * q * DTYPE_BYTES["bfloat16"]
    return _longer(hardware, engine, flops, model.kv_bytes_per_token * (q + k) + queries)


def decode_s(
    hardware: Hardware, model: Model, engine: EngineLimits, requests: NDArray[np.generic], context: NDArray[np.generic]
) -> Floats:
    """Attention of `requests` requests, one new token each over `context` tokens, seconds."""
    tokens = np.asarray(requests, np.float64) * np.asarray(context, np.float64)
    flops = 4 * model.layers * model.heads * model.head_dim * tokens
    return _longer(hardware, engine, flops, model.kv_bytes_per_token * tokens)
