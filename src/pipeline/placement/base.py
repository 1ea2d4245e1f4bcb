"""What a placement decides: which tiers hold KV blocks, where an evicted block goes, whether hits are loaded."""

from __future__ import annotations

from typing import Literal

from pipeline.spec import NonNegative, Spec

CAUSES = ("onboard", "prefetch", "offload", "demote", "kv_handoff")
ONBOARD, PREFETCH, OFFLOAD, DEMOTE, KV_HANDOFF = range(5)


class Placement(Spec):
    """Rules that move blocks between the tiers of an instance.

    inclusion: exclusive keeps a block in one tier at a time. demote: an evicted block goes one tier down; else it is
    dropped, and the tiers below HBM stay empty. load_or_recompute: what happens to hits below HBM.
    write_buffer_s: writes into a tier that may be waiting for its link, in seconds of that link; a block evicted beyond
    that is dropped. A block that waits is hit from the buffer.
    """

    name: str
    inclusion: Literal["exclusive"]
    demote: bool
    load_or_recompute: Literal["always_load"]
    write_buffer_s: NonNegative
