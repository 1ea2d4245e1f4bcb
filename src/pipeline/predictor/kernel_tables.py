"""From times of single layers, measured inside a serving engine, to the look-up of step times.

A step of T tokens and n sequences takes: each layer of the model as often as it occurs, at T tokens; the head and the
sampler at n sequences; and the attention of its batch in each transformer layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.predictor.base import Predictor
from pipeline.predictor.corrections import Corrections
from pipeline.predictor.joint_attention import NO_JOINT, JointAttention
from pipeline.predictor.skew import SkewSamples, skew_forest
from pipeline.predictor.step_table import StepTable
from pipeline.values import EngineLimits

Floats = NDArray[np.float64]
ONCE_A_STEP = ("embedding", "final_layernorm")
TWICE_A_LAYER = ("layernorm", "all_reduce")
MOST_GRAPH_TOKENS = 512


@dataclass(frozen=True)
class KernelTables:
    """Measured seconds of one call on one rank.

    dense, per_sequence: layer to (m, 2) count and seconds, by tokens and by sequences. attention: (m, 5) new and
    cached tokens of the chunk, decoding requests, KV tokens of each, seconds; 0 where there is none of a kind.
    skew: batches of unequal decode lengths; None where their effect is not to be corrected.
    """

    dense: Mapping[str, Floats]
    per_sequence: Mapping[str, Floats]
    attention: Floats
    skew: SkewSamples | None


def kernel_step_table(
    tables: KernelTables,
    layer_count: int,
    engine: EngineLimits,
    predictor: Predictor,
    corrections: Corrections,
    seed: int,
) -> StepTable:
    """Compose the look-up of a model of `layer_count` layers, each kernel as `predictor` learns it.

    Raises InputError where a kind of attention batches was not measured.
    """
    occurs = {layer: _occurrences(layer, layer_count) for layer in tables.dense}
    dense_s, dense_slope_s = _by_count(tables.dense, occurs, engine.max_batched_tokens, predictor, seed)
    sizes = graph_sizes(engine)
    padded = np.arange(dense_s.size)
    small = padded <= sizes[-1]
    padded[small] = sizes[np.searchsorted(sizes, padded[small])]
    once = dict.fromkeys(tables.per_sequence, 1)
    logits_s, logits_slope_s = _by_count(tables.per_sequence, once, engine.max_running, predictor, seed)
    joint = joint_attention(tables.attention, layer_count, predictor, seed)
    joint = joint._replace(saved_share=corrections.saved_share_ratio)
    if tables.skew is not None:
        trees, roots = skew_forest(tables.skew, corrections.skew_forest, seed)
        joint = joint._replace(trees=trees, roots=roots)
    none, one = np.zeros(0), np.ones((1, 1))
    most = [float(min(table[:, 0].max() for table in kind.values())) for kind in (tables.dense, tables.per_sequence)]
    return StepTable(
        dense_s[padded], dense_slope_s, logits_s, logits_slope_s,
        np.zeros(4), none, none, one, np.zeros(3), none, none, one,
        np.array([*most, np.inf, np.inf, np.inf, np.inf]),
        joint, corrections.prefill_step_s,
    )  # fmt: skip


def graph_sizes(engine: EngineLimits) -> NDArray[np.int64]:
    """Tokens to which vLLM pads a step that has a CUDA graph: 1, 2, 4, by 8 to 256, by 16 beyond; first of all, 0.

    Captured up to twice the running requests, at most 512 and the budget (defaults of vLLM v1).
    """
    sizes = np.array([0, 1, 2, 4, *range(8, 256, 8), *range(256, MOST_GRAPH_TOKENS + 1, 16)])
    return sizes[sizes <= min(2 * engine.max_running, MOST_GRAPH_TOKENS, engine.max_batched_tokens)]


def _occurrences(layer: str, layer_count: int) -> int:
    """How often a step calls a layer of that name."""
    if layer in ONCE_A_STEP:
        return 1
    return 2 * layer_count if layer in TWICE_A_LAYER else layer_count


def _by_count(
    tables: Mapping[str, Floats], occurs: Mapping[str, int], most: int, predictor: Predictor, seed: int
) -> tuple[Floats, float]:
    """Seconds at every count 0..n, n >= `most`, nothing at 0; and seconds per count beyond."""
    last = max(most, *(int(table[:, 0].max()) for table in tables.values()))
    counts = np.arange(last + 1, dtype=np.float64)
    total_s, total_slope_s = np.zeros(counts.size), 0.0
    for layer, table in tables.items():
        time_s, slope_s = predictor.layer_s(table, counts, seed)
        total_s += occurs[layer] * time_s
        total_slope_s += occurs[layer] * slope_s
    total_s[0] = 0.0
    return total_s, total_slope_s


def joint_attention(rows: Floats, layer_count: int, predictor: Predictor, seed: int) -> JointAttention:
    """Attention of `layer_count` layers, as `predictor` learns it from rows (m, 5) of batches."""
    (new, cached, decodes, context), time_s = predictor.batches_s(rows, seed)
    flat_s = np.ascontiguousarray(time_s * layer_count).ravel()
    return NO_JOINT._replace(new=new, cached=cached, decodes=decodes, context=context, time_s=flat_s)
