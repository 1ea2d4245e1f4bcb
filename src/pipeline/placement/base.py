"""What a placement decides: which tiers hold KV blocks, where an evicted block goes, whether hits are loaded."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from pipeline.spec import NonNegative, Positive, Spec

CAUSES = ("onboard", "prefetch", "offload", "demote", "kv_handoff")
ONBOARD, PREFETCH, OFFLOAD, DEMOTE, KV_HANDOFF = range(5)
LOAD_RULES = ("always_load", "always_recompute", "break_even", "deadline")
ALWAYS_LOAD, ALWAYS_RECOMPUTE, BREAK_EVEN, DEADLINE = range(4)


class Placement(Spec):
    """Rules that move blocks between the tiers of an instance.

    inclusion: exclusive keeps a block in one tier at a time. demote: an evicted block goes one tier down; else it is
    dropped, and the tiers below HBM stay empty.
    load_or_recompute: what happens to the leading hits of a prompt that lie below HBM. always_load, always_recompute;
    deadline: loaded if all is there within deadline_s, by what its links have to do already, else computed again;
    break_even: of loading all, those in DRAM, or none, what costs least: the time until the load is there, plus the
    time of a step that computes the rest, once for the request and delay_weight times for each one running.
    write_buffer_s: writes into a tier that may be waiting for its link, in seconds of that link; a block evicted beyond
    that is dropped. A block that waits is hit from the buffer.
    """

    name: str
    inclusion: Literal["exclusive"]
    demote: bool
    load_or_recompute: Literal["always_load", "always_recompute", "break_even", "deadline"]
    delay_weight: NonNegative
    deadline_s: Positive | None
    write_buffer_s: NonNegative

    @model_validator(mode="after")
    def _has_a_deadline(self) -> Placement:
        if (self.load_or_recompute == "deadline") != (self.deadline_s is not None):
            raise ValueError(
                f"placement.deadline_s: given {self.deadline_s} with load_or_recompute={self.load_or_recompute}; "
                "expected seconds with deadline, null with any other"
            )
        return self
