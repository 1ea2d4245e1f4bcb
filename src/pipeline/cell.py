"""A cell: every choice of one simulation, built and checked together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from pipeline.eviction.base import EvictionPolicy
from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.placement.base import Placement
from pipeline.placement.capacity import capacity_blocks
from pipeline.placement.prefetch import Prefetcher
from pipeline.placement.tiers import Tiers
from pipeline.predictor.base import Predictor
from pipeline.predictor.tau import TypicalLoad
from pipeline.routing.base import Router
from pipeline.routing.length import LengthPredictor
from pipeline.spec import InputError, Seed, Spec, build
from pipeline.trace.base import TraceSource
from pipeline.values import Cluster, Engine, Load, Slo


class Cell(Spec):
    """What one simulation is made of; `load` is null where the capacity itself is sought."""

    seed: Seed
    train_seed: Seed
    model: Model
    hardware: Hardware
    predictor: Predictor
    engine: Engine
    trace: TraceSource
    tiers: Tiers
    eviction: EvictionPolicy
    placement: Placement
    prefetch: Prefetcher
    routing: Router
    length: LengthPredictor
    tau: TypicalLoad
    cluster: Cluster
    slo: Slo
    load: Load | None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Cell:
        """Build a cell from its resolved configuration.

        Raises InputError naming group, key, value and what is allowed, also where values do not fit one another.
        """
        built = {key: _part(key, value, cls.model_fields[key].annotation) for key, value in values.items()}
        try:
            cell = cls(**built)
        except ValidationError as exc:
            raise InputError(
                "; ".join(f"{e['loc'][0]}: given {e['input']!r}: {e['msg']}" for e in exc.errors())
            ) from exc
        try:
            cell.model.check_tensor_parallel(cell.engine.tensor_parallel)
            cell.hardware.source.check_model(cell.model)
            blocks = cell.capacity_blocks(cell.trace.block_tokens)
            if cell.placement.streaming is not None:
                cell.placement.streaming.check_cluster(cell.cluster)
                cell.placement.streaming.held_blocks(blocks.tolist())
        except ValueError as exc:
            raise InputError(str(exc)) from exc
        return cell

    @property
    def max_context_tokens(self) -> int:
        """Longest prompt plus output that is served."""
        return self.engine.longest_context_tokens(self.model)

    def capacity_blocks(self, block_tokens: int) -> NDArray[np.int64]:
        """Blocks of one instance in each tier, (4,). Raises InputError, see `capacity_blocks`."""
        hardware = self.hardware
        return capacity_blocks(
            self.tiers, self.engine, self.model, hardware.hbm_bytes.value, hardware.gpus_per_node, block_tokens
        )


def _part(key: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return build(value, key, kind if isinstance(kind, type) else object)
