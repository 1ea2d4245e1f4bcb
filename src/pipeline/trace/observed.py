"""What a trace shows of its sessions: their turns, what each adds, and the prefixes that they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.mixing import GOLDEN_GAMMA, mixed
from pipeline.trace.request_trace import Floats, Ints, RequestTrace
from pipeline.trace.selection import take

CONTINUES, SHRINKS, DIFFERS, FORGETS = "continues", "shrinks", "differs", "forgets"
SAME_PREFIX_SESSIONS = 2
SEED_GAMMA = 0x94D049BB133111EB
"""Distance between the sequences of two seeds."""


@dataclass(frozen=True)
class Observed:
    """Samples over the s sessions and n requests of a trace.

    turns_count: (s,). first_prompt_tokens: (s,), prompts of first turns. output_tokens: (n,).
    new_tokens: prompt of a later turn less the prompt and the answer before it, of turns that continue those.
    think_s: of later turns; where the trace has none (open loop) the time between arrivals, too long by the service.
    later: how many later turns there are of each kind. `continues`: the prompt holds the prompt and the answer before,
        and more. `shrinks`: it is shorter than the prompt before (compaction, a sub-agent). `differs`: no shorter, but
        it does not begin with the full blocks of the prompt before (all but the last one, whose end may be written
        anew); only where the trace has prefixes. `forgets`: it goes on from the prompt before, but has no room for all
        of its answer.
    """

    turns_count: Ints
    first_prompt_tokens: Ints
    new_tokens: Ints
    output_tokens: Ints
    think_s: Floats
    later: dict[str, int]


@dataclass(frozen=True)
class SharedPrefixes:
    """Prefixes that the first prompts of two sessions or more begin with, full blocks only.

    prefix: (s,) the number of the longest such prefix of each session, -1 for none. tokens: (k,) length of each: as
    long as its full blocks and the shortest of the prompts behind it allow, so up to a block too long.
    """

    prefix: Ints
    tokens: Ints


def halves(trace: RequestTrace, seed: int) -> tuple[RequestTrace, RequestTrace]:
    """Split a trace by session: one half, and the rest, drawn by a hash of seed and session number."""
    keys = trace.session_id.astype(np.uint64) + np.uint64((seed * SEED_GAMMA + int(GOLDEN_GAMMA)) % 2**64)
    first = (mixed(keys) >> np.uint64(63)).astype(np.bool_)
    return take(trace, np.flatnonzero(first)), take(trace, np.flatnonzero(~first))


def observe(trace: RequestTrace) -> Observed:
    """Take the samples of a trace."""
    order = np.argsort(trace.session_id, kind="stable")
    before, now = order[:-1], order[1:]
    same = trace.session_id[before] == trace.session_id[now]
    before, now = before[same], now[same]
    kept_tokens = trace.input_tokens[before] + trace.output_tokens[before]
    kinds = {
        SHRINKS: trace.input_tokens[now] < trace.input_tokens[before],
        DIFFERS: ~_goes_on(trace, before, now),
        FORGETS: trace.input_tokens[now] <= kept_tokens,
        CONTINUES: np.ones(now.size, np.bool_),
    }
    kind = np.select(list(kinds.values()), list(range(len(kinds))))
    known = ~np.isnan(trace.think_s[now])
    gap_s = trace.arrival_s[now] - trace.arrival_s[before]
    continuing = kind == list(kinds).index(CONTINUES)
    return Observed(
        turns_count=np.unique(trace.session_id, return_counts=True)[1],
        first_prompt_tokens=trace.input_tokens[_first_turns(trace)],
        new_tokens=(trace.input_tokens[now] - kept_tokens)[continuing],
        output_tokens=trace.output_tokens,
        think_s=trace.think_s[now][known] if known.any() else gap_s,
        later={name: int((kind == i).sum()) for i, name in enumerate(kinds)},
    )


def shared_prefixes(trace: RequestTrace) -> SharedPrefixes:
    """Find what the first prompts of sessions share."""
    first = _first_turns(trace)
    alone = take(trace, np.sort(first))
    session = np.argsort(np.argsort(alone.session_id))
    owner, position = alone.block_places()
    is_prompt = position < (alone.input_tokens // alone.block_tokens)[owner]
    sessions = np.bincount(alone.block_ids[is_prompt], minlength=alone.block_count)
    # Equal ids have equal prefixes, so the shared blocks of a chain are its first ones.
    shared = is_prompt & (sessions[alone.block_ids] >= SAME_PREFIX_SESSIONS)
    run = np.bincount(owner[shared], minlength=alone.request_count)
    has = np.flatnonzero(run)
    last = alone.block_ids[alone.block_offset[has] + run[has] - 1]
    _, at, number = np.unique(last, return_index=True, return_inverse=True)
    shortest = np.full(at.size, np.iinfo(np.int64).max)
    np.minimum.at(shortest, number, alone.input_tokens[has])
    full = run[has][at] * alone.block_tokens
    prefix = np.full(alone.request_count, -1)
    prefix[session[has]] = number
    return SharedPrefixes(prefix, np.clip(shortest - 1, full, full + alone.block_tokens - 1))


def _first_turns(trace: RequestTrace) -> Ints:
    """Position of the first request of each session (s,), by session number."""
    return np.unique(trace.session_id, return_index=True)[1]


def _goes_on(trace: RequestTrace, before: Ints, now: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the chain of `now` begins with the full prompt blocks of `before`, all but the last one."""
    listed = np.diff(trace.block_offset)
    depth = np.minimum(trace.input_tokens // trace.block_tokens, listed)[before] - 1
    goes_on = depth <= 0
    deep = np.flatnonzero((depth > 0) & (listed[now] >= depth))
    last = depth[deep] - 1
    starts = trace.block_offset
    goes_on[deep] = trace.block_ids[starts[before[deep]] + last] == trace.block_ids[starts[now[deep]] + last]
    return goes_on
