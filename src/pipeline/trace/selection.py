"""Choosing among the requests of a trace, and cutting those that a model cannot hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.spec import InputError
from pipeline.trace.ledger import CHANGED, DROPPED, Ledger
from pipeline.trace.request_trace import Floats, Ints, RequestTrace

TooLong = Literal["drop", "clip", "refuse"]


def take(trace: RequestTrace, index: Ints) -> RequestTrace:
    """Return the requests at positions `index` (k,), in that order, which must be one of arrival.

    The first request that is left of a session counts by its arrival (its think time becomes NaN). In a closed loop
    the time that turns left out before a request took, as recorded, becomes think time: it comes no sooner.
    """
    lengths = np.diff(trace.block_offset)[index]
    offset = np.concatenate([[0], np.cumsum(lengths)])
    think_s, session_id = _bridged_think_s(trace, index), trace.session_id[index]
    think_s[np.unique(session_id, return_index=True)[1]] = np.nan
    return replace(
        trace,
        request_id=trace.request_id[index],
        session_id=session_id,
        class_id=trace.class_id[index],
        arrival_s=trace.arrival_s[index],
        think_s=think_s,
        input_tokens=trace.input_tokens[index],
        output_tokens=trace.output_tokens[index],
        block_offset=offset,
        block_ids=_chains(trace.block_ids, trace.block_offset[index], offset),
    )


def _bridged_think_s(trace: RequestTrace, index: Ints) -> Floats:
    """Think times of the requests at `index`: of the first turn left out before one, and from its arrival to that."""
    if index.size == trace.request_count or np.isnan(trace.think_s).all():
        return trace.think_s[index]
    order = np.lexsort((np.arange(trace.request_count), trace.session_id))
    is_left = np.ones(trace.request_count, np.bool_)
    is_left[index] = False
    session, left = trace.session_id[order], is_left[order]
    starts = np.diff(session, prepend=-1) != 0
    # The place, in that order, of the first of the turns left out right before each one; its own if there is none.
    begins = starts | ~np.concatenate([[False], left[:-1]])
    first = np.maximum.accumulate(np.where(begins, np.arange(order.size), 0))
    arrival_s, think_s = trace.arrival_s[order], trace.think_s[order]
    bridged = np.empty(order.size)
    bridged[order] = think_s[first] + (arrival_s - arrival_s[first])
    return np.where(np.isnan(trace.think_s), np.nan, bridged)[index]


@njit(cache=True)
def _chains(block_ids: Ints, start: Ints, offset: Ints) -> Ints:
    """Block ids of requests that start at start (k,), one after the other at offset (k + 1,)."""
    taken = np.empty(offset[-1], np.int64)
    for request in range(start.size):
        length = offset[request + 1] - offset[request]
        taken[offset[request] : offset[request + 1]] = block_ids[start[request] : start[request] + length]
    return taken


def keep(trace: RequestTrace, kept: NDArray[np.bool_], reason: str, ledger: Ledger) -> RequestTrace:
    """Return the requests where `kept` (n,); the others are counted as dropped for `reason`."""
    ledger.add_all(DROPPED + reason, trace.request_id[~kept])
    return trace if kept.all() else take(trace, np.flatnonzero(kept))


def fit_context(trace: RequestTrace, max_context_tokens: int, too_long: TooLong, ledger: Ledger) -> RequestTrace:
    """Deal with requests whose prompt and output together exceed the model's context.

    `drop`: left out. `clip`: the prompt's end is cut until one output token fits, then the output until all fits.
    `refuse`: InputError. request_id holds row numbers at this point; every case is counted.
    """
    total = trace.input_tokens + trace.output_tokens
    long = total > max_context_tokens
    if not long.any():
        return trace
    if too_long == "refuse":
        at = int(np.argmax(long))
        prompt, output = int(trace.input_tokens[at]), int(trace.output_tokens[at])
        raise InputError(
            f"{ledger.path}, row {ledger.line_of(trace.request_id[at])}: {prompt} prompt and {output} output tokens "
            f"exceed the model's context of {max_context_tokens} (trace.too_long=drop or clip goes on)"
        )
    if too_long == "drop":
        return keep(trace, ~long, "prompt and output longer than the model's context", ledger)
    ledger.add_all(CHANGED + "longer than the model's context, clipped", trace.request_id[long])
    return _clip(trace, max_context_tokens)


def _clip(trace: RequestTrace, max_context_tokens: int) -> RequestTrace:
    if max_context_tokens < 2:
        raise InputError(f"model.max_context_tokens: given {max_context_tokens}, expected at least 2")
    inputs = np.minimum(trace.input_tokens, max_context_tokens - 1)
    outputs = np.minimum(trace.output_tokens, max_context_tokens - inputs)
    # Behind a cut prompt another output follows: the blocks known to hold the old one are not the new one's.
    known = np.where(inputs < trace.input_tokens, inputs, inputs + outputs)
    request, position = trace.block_places()
    left = np.minimum(np.diff(trace.block_offset), known // trace.block_tokens)
    changed: dict[str, Any] = {
        "block_ids": trace.block_ids[position < left[request]],
        "block_offset": np.concatenate([[0], np.cumsum(left)]),
    }
    return replace(trace, input_tokens=inputs, output_tokens=outputs, **changed)
