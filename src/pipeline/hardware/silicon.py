"""`Silicon`: step times interpolated from kernel measurements that the package aiconfigurator-core ships.

The package holds tables of GEMM, attention and all-reduce kernels measured on the GPU named by `system` inside a
serving engine, and interpolates them; nothing is measured here, and its answers carry no error bars. What its tables
do not hold is not asked for: prefill attention was measured without cached tokens up to `most_context_tokens` (a cached
prefix is subtracted by the package), beyond which the predictor's physical baseline continues.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.hardware.base import Calibration, CalibrationSource
from pipeline.hardware.grid import Points, sample_points
from pipeline.hardware.roofline import StepTimes
from pipeline.hardware.rows import constant, constants, kv_tokens, links, step_samples
from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.spec import Count, InputError, Sourced
from pipeline.values import EngineLimits

LABEL = "silicon_interpolated"
PACKAGE = "aiconfigurator-core"
MODULE = "aiconfigurator_core"
TABLES_USED = (
    "gemm_perf",
    "context_attention_perf",
    "generation_attention_perf",
    "moe_perf",
    "custom_allreduce_perf",
    "nccl_perf",
)
GEMM_MODES = {"bfloat16": "bfloat16", "float16": "bfloat16", "fp8": "fp8", "int4": "int4_wo"}
EXPERT_MODES = GEMM_MODES | {"mxfp4": "w4a16_mxfp4"}
COMMUNICATION = ("_ar", "p2p", "moe_pre_dispatch", "moe_post_dispatch")
SLIDING = {"GptOssForCausalLM": 128}  # windows by architecture, of every other layer: all that the package computes
KV_MODES = {"bfloat16": "bfloat16", "float16": "bfloat16", "fp8": "fp8"}
MS = 1e-3


class Silicon(CalibrationSource):
    """Tables of one GPU (`system`) and serving engine (`backend`), by the package's names.

    most_tokens: largest token count among the GEMM measurements; most_context_tokens: longest measured prefill.
    """

    system: str
    backend: str
    most_tokens: Count
    most_context_tokens: Count

    @staticmethod
    def available() -> bool:
        """Whether the package can run here: Linux x86-64, and installed."""
        fits = sys.platform == "linux" and platform.machine() == "x86_64"
        return fits and importlib.util.find_spec(MODULE) is not None

    def runs_here(self) -> bool:
        """Whether the package can run here."""
        return self.available()

    def check_model(self, model: Model) -> None:
        """Raise ValueError for parts of a model that the package leaves out, or has as whole blocks alone."""
        window, sliding = SLIDING.get(model.architecture), model.sliding
        lacks = None
        if model.mla is not None:
            lacks = "latent attention (mla)"
        elif (sliding and (sliding.window_tokens, sliding.layers)) != (window and (window, model.layers // 2)):
            lacks = "these sliding layers"
        elif model.moe is not None and (model.moe.shared_experts or model.moe.dense_layers):
            lacks = "shared experts and dense layers among experts"
        if lacks:
            raise ValueError(
                f"hardware.source: {PACKAGE} has no kernel times for {lacks} of model {model.name}; use the roofline, "
                "hardware=h100_sxm_datasheet or h200_sxm_datasheet (uncalibrated)"
            )

    def calibrate(self, hardware: Hardware, model: Model, engine: EngineLimits) -> Calibration:
        """Interpolate every operation at points within the tables and the engine's limits."""
        points = sample_points(
            model, engine, kv_tokens(hardware, model, engine), self.most_tokens, self.most_context_tokens
        )
        with self._kernels(model, engine) as kernels:
            times = _times(kernels, engine, points)
            measured_by = f"{PACKAGE} {version(PACKAGE)}: {self.system}, {self.backend} {kernels.engine_version}"
        samples = step_samples(hardware, model, engine, points, times, LABEL)
        count = Sourced(value=samples.num_rows, source=measured_by, as_of=f"{PACKAGE} {version(PACKAGE)}")
        more = [constant("silicon_sample_count", "count", count)]
        return Calibration(samples, constants(hardware, model, engine, more), links(hardware), LABEL, True)

    @contextmanager
    def _kernels(self, model: Model, engine: EngineLimits) -> Iterator[_Kernels]:
        if not self.available():
            raise InputError(
                f"hardware.source: {PACKAGE} runs on Linux x86-64 only and is not installed here ({sys.platform} "
                f"{platform.machine()}); use hardware.source pipeline.hardware.datasheet.Datasheet (uncalibrated)"
            )
        with _quiet(), tempfile.TemporaryDirectory(prefix="kvplan_model_") as folder:
            _write_shape(Path(folder), model)
            try:
                yield _compile(self, Path(folder), model, engine)
            except InputError:
                raise
            except Exception as exc:  # the package raises its own classes and bare RuntimeErrors from Rust
                reason = " ".join(str(exc).split())
                raise InputError(
                    f"hardware.source: {PACKAGE} has no answer for model {model.name} ({model.dtype}, KV "
                    f"{model.kv_dtype}), tensor_parallel {engine.tensor_parallel} on {self.system}, {self.backend}: "
                    f"{reason[:300]}"
                ) from exc


class _Kernels(NamedTuple):
    """A compiled model: the package's handle, and the positions of its operations by kind."""

    handle: Any
    dense: list[int]
    collective: list[int]
    logits: list[int]
    prefill: list[int]
    decode: list[int]
    engine_version: str


def _write_shape(folder: Path, model: Model) -> None:
    """Write the shape where the package looks: a name it does not ship would be looked up on a hub."""
    shape = {
        "architectures": [model.architecture],
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": model.max_context_tokens,
        "tie_word_embeddings": model.tied_embeddings,
        "torch_dtype": "bfloat16",
    }
    if model.moe is not None:
        shape |= {
            "num_experts": model.moe.experts,
            "num_local_experts": model.moe.experts,
            "num_experts_per_tok": model.moe.experts_per_token,
            "moe_intermediate_size": model.moe.ffn,
        }
    (folder / "config.json").write_text(json.dumps(shape))


def _compile(source: Silicon, folder: Path, model: Model, engine: EngineLimits) -> _Kernels:
    from aiconfigurator_core.sdk import EngineHandle, perf_database

    ranks = engine.tensor_parallel
    known = sorted(file.stem for file in Path(perf_database.__file__).parents[1].joinpath("systems/data").iterdir())
    if source.system not in known:
        raise InputError(f"hardware.source.system: given {source.system!r}, expected one of {', '.join(known)}")
    if model.kv_dtype not in KV_MODES:
        raise InputError(f"model.kv_dtype: given {model.kv_dtype!r}, but {PACKAGE} has {', '.join(KV_MODES)}")
    experts = {} if model.moe is None else {
        "moe_tp_size": ranks, "moe_quant_mode": EXPERT_MODES[model.moe.dtype or model.dtype],
    }  # fmt: skip
    handle = EngineHandle.compile(
        str(folder), source.system, source.backend, tp_size=ranks,
        gemm_quant_mode=GEMM_MODES[model.dtype], kvcache_quant_mode=KV_MODES[model.kv_dtype], **experts,
    )  # fmt: skip
    static = handle.run_static_per_op(batch_size=1, isl=2, osl=2)
    context = _names(len(static[0]), lambda i: handle.evaluate_context_ops([i], batch_size=1, s=1))
    generation = _names(len(static[1]), lambda i: handle.evaluate_generation_ops([i], batch_size=1, s=1))
    communication = [i for i, name in enumerate(context) if any(part in name for part in COMMUNICATION)]
    attention = [i for i, name in enumerate(context) if name.endswith("_attention")]
    dense = [i for i, name in enumerate(context) if i not in (*communication, *attention) and "_logits_" not in name]
    logits = [i for i, name in enumerate(generation) if name.endswith("_logits_gemm")]
    decode = [i for i, name in enumerate(generation) if name.endswith("_attention")]
    engine_version = perf_database.resolve_query_version(source.system, source.backend, "current")
    return _Kernels(handle, dense, communication, logits, attention, decode, str(engine_version))


def _names(distinct: int, evaluate: Callable[[int], Any]) -> list[str]:
    """Names of all operations of a pass, of which `distinct` have names of their own, by their positions."""
    names = [evaluate(i)[0][0].removeprefix("context") for i in range(distinct)]
    repeated = distinct - len(set(names))
    return names + [evaluate(i)[0][0].removeprefix("context") for i in range(distinct, distinct + repeated)]


def _times(kernels: _Kernels, engine: EngineLimits, points: Points) -> StepTimes:
    handle = kernels.handle

    def context(operations: list[int], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds by the number of rows that the operations see."""
        asked = (handle.evaluate_context_ops(operations, batch_size=1, s=1, x=int(n)) for n in counts)
        return np.array([MS * sum(value[1] for value in answer) for answer in asked])

    prefills = zip(points.prefill_new.tolist(), points.prefill_cached.tolist(), strict=True)
    decodes = zip(points.decode_requests.tolist(), points.decode_context.tolist(), strict=True)
    prefill = [handle.evaluate_context_ops(kernels.prefill, batch_size=1, s=q, prefix=k) for q, k in prefills]
    decode = [handle.evaluate_generation_ops(kernels.decode, batch_size=d, s=c) for d, c in decodes]
    logits = [handle.evaluate_generation_ops(kernels.logits, batch_size=n, s=1) for n in points.sequences.tolist()]
    return StepTimes(
        dense=context(kernels.dense, points.tokens),
        logits=np.array([MS * sum(value[1] for value in answer) for answer in logits]),
        collective=context(kernels.collective, points.tokens) if engine.tensor_parallel > 1 else np.zeros(0),
        attention_prefill=np.array([MS * sum(value[1] for value in answer) for answer in prefill]),
        attention_decode=np.array([MS * sum(value[1] for value in answer) for answer in decode]),
    )


class _Forward(logging.Handler):
    """Keeps the package's remarks, unless they are about a table that is used here."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if any(f"{table}." in message for table in TABLES_USED):
            logging.getLogger("pipeline.hardware").warning(message)


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger(MODULE)
    handler, propagate = _Forward(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
