"""What a placement decides: which tiers hold KV blocks, when a block is copied down, whether hits are loaded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from pipeline.placement.streaming import Streaming
from pipeline.spec import Count, NonNegative, Positive, Ratio, Spec

CAUSES = ("onboard", "prefetch", "offload", "demote", "kv_handoff")
int64: Any = np.int64
# As int64: for a literal, every function that it is passed to would be compiled once more.
ONBOARD, PREFETCH, OFFLOAD, DEMOTE, KV_HANDOFF = map(int64, range(5))
LOAD_RULES = ("always_load", "always_recompute", "break_even", "split", "deadline")
ALWAYS_LOAD, ALWAYS_RECOMPUTE, BREAK_EVEN, SPLIT, DEADLINE = range(5)
WRITE_POLICIES = ("none", "write_back", "write_through", "write_through_selective")
NO_WRITES, WRITE_BACK, WRITE_THROUGH, WRITE_SELECTIVE = range(4)

Blocks = Annotated[int, Field(ge=0, strict=True)]


class Placement(Spec):
    """Rules that move blocks between the tiers of an instance.

    inclusion: exclusive: a block lies in one tier, and moves up when it is hit; inclusive: what lies below stays there.
    keeps_on_the_way: inclusive: what comes up from SSD or a remote pool stays in the tiers that it passes, too.
    hbm_keeps_unused: whether HBM keeps a block that no request uses any more, until it needs the room.
    write_policy: when a block of HBM is copied one tier down. none: never, the tiers below stay empty. write_back: when
    it is evicted, unless a tier below holds it. write_through: once it is computed, at the end of the step.
    write_through_selective: once it is used for the write_threshold-th time: computed, or hit.
    writes_output: whether blocks that end in output tokens are written when they are computed (write_through).
    hits_count_below: inclusive: a hit in HBM is a use of the copies below, and writes the block where there is none.
    lower_write_policy: between the tiers below: none drops what DRAM evicts; write_back passes it on; write_through
    copies on what comes in, write_through_selective from the lower_write_threshold-th time that it does.
    lower_order: which block of a request is the oldest below HBM, its last (leaf_first) or its first (root_first), or
    its last once it is hit (leaf_first_once_hit).
    spares_hbm: whether a tier below keeps what HBM holds too. evict_at_ratio, evict_ratio: a tier below HBM fuller than
    the first evicts a share of its capacity at once (at least a block).
    least_load_tokens: fewer hits below HBM are computed again.
    write_buffer_s: writes from HBM that may be under way, in seconds of their link. Beyond it, with when_writes_lag
    wait, the engine starts no step, and writes between the tiers below queue on; with drop, a block is not written. A
    block on its way is no hit below until it is there.
    load_or_recompute: what happens to the leading hits of a prompt that lie below HBM. always_load, always_recompute;
    deadline: loaded if all is there within deadline_s, by what its links have to do already, else computed again;
    break_even: of loading down to each tier, or none, what costs least: the time until the load is there, plus the
    time of a step that computes the rest, once for the request and delay_weight times for each one running; split: the
    last part is loaded while the first is computed, cut where both are ready soonest.
    streaming: KV of running requests lies in part below HBM, and none is kept for others; null: all in HBM, and kept.
    """

    name: str
    inclusion: Literal["exclusive", "inclusive"]
    keeps_on_the_way: bool
    hbm_keeps_unused: bool
    write_policy: Literal["none", "write_back", "write_through", "write_through_selective"]
    write_threshold: Count | None
    writes_output: bool
    hits_count_below: bool
    lower_write_policy: Literal["none", "write_back", "write_through", "write_through_selective"]
    lower_write_threshold: Count | None
    lower_order: Literal["leaf_first", "leaf_first_once_hit", "root_first"]
    spares_hbm: bool
    evict_at_ratio: Annotated[Ratio, Field(gt=0)]
    evict_ratio: Ratio
    when_writes_lag: Literal["wait", "drop"]
    write_buffer_s: NonNegative
    load_or_recompute: Literal["always_load", "always_recompute", "break_even", "split", "deadline"]
    least_load_tokens: Blocks
    delay_weight: NonNegative
    deadline_s: Positive | None
    streaming: Streaming | None = None

    @model_validator(mode="after")
    def _has_a_deadline(self) -> Placement:
        if (self.load_or_recompute == "deadline") != (self.deadline_s is not None):
            raise ValueError(
                f"placement.deadline_s: given {self.deadline_s} with load_or_recompute={self.load_or_recompute}; "
                "expected seconds with deadline, null with any other"
            )
        return self

    @model_validator(mode="after")
    def _has_thresholds(self) -> Placement:
        for policy, threshold in (("write_policy", "write_threshold"), ("lower_write_policy", "lower_write_threshold")):
            chosen, given = getattr(self, policy), getattr(self, threshold)
            if (chosen == "write_through_selective") != (given is not None):
                raise ValueError(
                    f"placement.{threshold}: given {given} with {policy}={chosen}; expected a number with "
                    "write_through_selective, null with any other"
                )
        return self

    @model_validator(mode="after")
    def _streams_alone(self) -> Placement:
        if self.streaming is not None and self.write_policy != "none":
            raise ValueError(
                f"placement.write_policy: given {self.write_policy} with streaming, which keeps nothing; expected none"
            )
        return self

    @model_validator(mode="after")
    def _copies_are_kept(self) -> Placement:
        for name in ("write_policy", "lower_write_policy"):
            given = getattr(self, name)
            if self.inclusion == "exclusive" and given.startswith("write_through"):
                raise ValueError(
                    f"placement.{name}: given {given} with inclusion=exclusive, which keeps a block in one tier; "
                    "expected write_back or none, or inclusion=inclusive"
                )
        for name in ("keeps_on_the_way", "hits_count_below", "spares_hbm"):
            if self.inclusion == "exclusive" and getattr(self, name):
                raise ValueError(
                    f"placement.{name}: given true with inclusion=exclusive, which keeps no copies; expected false"
                )
        return self
