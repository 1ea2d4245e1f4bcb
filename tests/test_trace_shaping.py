"""Load scaling, bounds of reuse, storage."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from trace_sources import PLENTY, source

from pipeline.spec import InputError
from pipeline.tables import read_arrays, write_arrays
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.reuse import infinite_cache_hit_ratio, infinite_cache_hit_tokens
from pipeline.trace.selection import take
from pipeline.trace.shaping import (
    at_rate,
    check_times,
    loaded,
    mean_rate_per_s,
    measured_window_s,
    saturating,
    with_sessions,
)
from pipeline.trace.storage import from_arrays, to_arrays

NAN = float("nan")


def trace_of(
    arrivals: list[float],
    sessions: list[int] | None = None,
    thinks: list[float] | None = None,
    inputs: list[int] | None = None,
    chains: list[list[int]] | None = None,
) -> RequestTrace:
    n = len(arrivals)
    blocks = chains or [[] for _ in arrivals]
    return RequestTrace(
        name="by hand",
        block_tokens=4,
        classes=("a", "b"),
        request_id=np.arange(n),
        session_id=np.array(sessions or range(n), np.int64),
        class_id=np.arange(n) % 2,
        arrival_s=np.array(arrivals, np.float64),
        think_s=np.array(thinks or [np.nan] * n),
        input_tokens=np.array(inputs or [8] * n, np.int64),
        output_tokens=np.ones(n, np.int64),
        block_offset=np.concatenate([[0], np.cumsum([len(listed) for listed in blocks])]).astype(np.int64),
        block_ids=np.array([*chain.from_iterable(blocks)], np.int64),
        has_prefixes=True,
    )


def test_open_loop_scales_every_arrival() -> None:
    trace = trace_of([0, 1, 1, 4])
    assert mean_rate_per_s(trace) == 1.0
    faster = at_rate(trace, 4.0)
    assert faster.arrival_s.tolist() == [0, 0.25, 0.25, 1]
    assert mean_rate_per_s(faster) == 4.0
    assert faster.request_id.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(at_rate(faster, 1.0).arrival_s, trace.arrival_s)


def test_open_loop_loses_whole_sessions() -> None:
    sessions = [i % 50 for i in range(400)]
    trace = trace_of([0.5 * i for i in range(400)], sessions)
    few, more = with_sessions(trace, 0.5), with_sessions(trace, 1.5)
    for kept, count in ((few, 100), (more, 300)):
        assert kept.request_count == pytest.approx(count, abs=4)
        assert mean_rate_per_s(kept) == pytest.approx(count / 200)
        assert all(np.count_nonzero(kept.session_id == s) == 8 for s in set(kept.session_id.tolist()))
        gaps = np.diff(kept.arrival_s[kept.session_id == kept.session_id[0]])
        np.testing.assert_allclose(gaps, 25, rtol=0.06)  # but for the rounding to sessions
    assert set(few.session_id.tolist()) < set(more.session_id.tolist())
    assert loaded(trace, 0.5, "sessions").request_count == few.request_count
    with pytest.raises(InputError, match=r"load.scale_by: given sessions, .* has 2.005 requests/s; asked for are 3"):
        with_sessions(trace, 3.0)


def test_what_a_left_out_turn_took_becomes_think_time() -> None:
    # Session 0 at 0, 10 (think 4), 30 (5), 100 (6); session 1 at 1, 50 (7). Without the turns at 10 and 30 the one at
    # 100 comes 4 s, and the 90 s from the arrival at 10, after the answer to the first.
    trace = trace_of([0, 1, 10, 30, 50, 100], [0, 1, 0, 0, 1, 0], [NAN, NAN, 4, 5, 7, 6])
    left = take(trace, np.array([0, 1, 4, 5]))
    assert left.think_s[2:].tolist() == [7, 94]
    assert np.isnan(left.think_s[:2]).all()
    # The first that is left starts the session; the next one keeps its own think time.
    assert take(trace, np.array([2, 3])).think_s[1] == 5
    assert take(trace, np.array([0, 1, 2, 3, 4, 5])).think_s[2:].tolist() == [4, 5, 7, 6]
    open_loop = replace(trace, think_s=np.full(6, NAN))
    assert np.isnan(take(open_loop, np.array([0, 5])).think_s).all()


def test_closed_loop_scales_session_starts_and_leaves_think_times() -> None:
    # Session 0 at 0, 3, 20; session 1 at 2, 6; session 2 at 10. Six requests, last start at 10.
    trace = trace_of(
        [0, 2, 3, 6, 10, 20],
        [0, 1, 0, 1, 2, 0],
        [NAN, NAN, 3, 4, NAN, 17],
        chains=[[0], [1], [0, 2], [1, 3], [4], [0, 2]],
    )
    assert mean_rate_per_s(trace) == 0.6
    faster = at_rate(trace, 6.0)
    # Starts at 0, 0.2, 1; later turns keep their 3, 20, 4 s from the start of their session.
    np.testing.assert_allclose(faster.arrival_s, [0, 0.2, 1, 3, 4.2, 20], rtol=1e-15)
    assert faster.request_id.tolist() == [0, 1, 4, 2, 3, 5]
    assert faster.session_id.tolist() == [0, 1, 2, 0, 1, 0]
    np.testing.assert_array_equal(faster.think_s, [NAN, NAN, NAN, 3, 4, 17])
    assert faster.block_ids.tolist() == [0, 1, 4, 0, 2, 1, 3, 0, 2]
    assert mean_rate_per_s(faster) == pytest.approx(6.0, rel=1e-12)
    slower = at_rate(trace, 0.06)
    np.testing.assert_allclose(slower.arrival_s, [0, 3, 20, 20, 24, 100], rtol=1e-15)
    assert slower.request_id.tolist() == [0, 2, 1, 5, 3, 4]


@pytest.mark.parametrize(
    ("trace", "what"),
    [
        (trace_of([0]), r"requests \(1\)"),
        (trace_of([0, 0]), r"requests \(2\)"),
        (trace_of([0, 3], [0, 0], [NAN, 3]), r"sessions \(1\)"),
        (trace_of([0, 0, 3], [0, 1, 0], [NAN, NAN, 3]), r"sessions \(2\)"),
    ],
)
def test_no_load_can_be_set_where_all_starts_at_once(trace: RequestTrace, what: str) -> None:
    for refuse in (check_times, lambda given: at_rate(given, 5.0)):
        with pytest.raises(InputError, match=f"by hand: its {what} all start at one time, expected two times or more"):
            refuse(trace)
    check_times(trace_of([0, 1]))


def test_a_rate_is_positive() -> None:
    for rate in (0.0, -1.0, NAN, float("inf")):
        with pytest.raises(InputError, match=r"load.rate_per_s: given"):
            at_rate(trace_of([0, 1]), rate)


def test_scaling_loses_and_changes_no_request() -> None:
    trace = source("agent", session_count=40).load(0, PLENTY).trace
    for rate in (0.01, 1.0, 300.0):
        scaled = at_rate(trace, rate)
        check_contract(scaled, trace)
        assert mean_rate_per_s(scaled) == pytest.approx(rate, rel=1e-9)


def check_contract(scaled: RequestTrace, trace: RequestTrace) -> None:
    assert (np.diff(scaled.arrival_s) >= 0).all()
    back = np.argsort(scaled.request_id)
    for name in ("input_tokens", "output_tokens", "session_id", "think_s"):
        np.testing.assert_array_equal(getattr(scaled, name)[back], getattr(trace, name))
    for session in range(40):  # turns keep their order
        mine = scaled.request_id[scaled.session_id == session]
        assert (np.diff(mine) > 0).all()
    for i in (0, 1, trace.request_count - 1):
        at = back[i]
        np.testing.assert_array_equal(
            scaled.block_ids[scaled.block_offset[at] : scaled.block_offset[at + 1]],
            trace.block_ids[trace.block_offset[i] : trace.block_offset[i + 1]],
        )


def test_saturating_sends_everything_at_once_and_keeps_turns_in_sequence() -> None:
    trace = trace_of([0, 2, 3], [0, 1, 0], [NAN, NAN, 3])
    all_at_once = saturating(trace)
    assert all_at_once.arrival_s.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(all_at_once.think_s, [NAN, NAN, 0])
    assert trace.arrival_s.tolist() == [0, 2, 3]


def test_infinite_cache_hits_are_the_leading_run_of_full_blocks() -> None:
    trace = trace_of(
        [0, 1, 2, 3, 4, 5],
        inputs=[12, 13, 12, 9, 20, 3],
        #        all new   2 known  hit 3, but the last token is computed: 2; 1 known  known behind a miss; none full
        chains=[[0, 1, 2], [0, 1, 3], [0, 1, 2], [0, 4], [5, 6, 7, 8, 9], []],
    )
    assert infinite_cache_hit_tokens(trace).tolist() == [0, 8, 8, 4, 0, 0]
    assert infinite_cache_hit_ratio(trace) == 20 / 69


def test_blocks_of_outputs_are_found_by_the_next_turn_only() -> None:
    # Prompt of 4 tokens and an output that completes block 1; then a prompt that holds both and more.
    trace = trace_of([0, 1], inputs=[4, 13], chains=[[0, 1], [0, 1, 2]])
    assert infinite_cache_hit_tokens(trace).tolist() == [0, 8]
    # The same request twice: block 1 belongs to its output, and the prompt's only block holds its last token.
    again = trace_of([0, 1], inputs=[4, 4], chains=[[0, 1], [0, 1]])
    assert infinite_cache_hit_tokens(again).tolist() == [0, 0]


def test_no_prefixes_no_hits() -> None:
    assert infinite_cache_hit_ratio(trace_of([0, 1])) == 0.0


def test_a_stored_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    traces = [source("chat", session_count=5).load(0, PLENTY).trace, trace_of([0, 1])]
    for trace in traces:
        write_arrays(tmp_path / "t.npz", to_arrays(trace))
        back = from_arrays(read_arrays(tmp_path / "t.npz"))
        assert (back.name, back.classes, back.block_tokens, back.has_prefixes) == (
            trace.name,
            trace.classes,
            trace.block_tokens,
            trace.has_prefixes,
        )
        assert type(back.name) is str
        assert type(back.has_prefixes) is bool
        for name, array in to_arrays(trace).items():
            np.testing.assert_array_equal(to_arrays(back)[name], array)
            assert to_arrays(back)[name].dtype == array.dtype
    arrays = to_arrays(traces[0])
    del arrays["think_s"]
    with pytest.raises(InputError, match=r"stored trace: missing or unknown arrays \['think_s'\]"):
        from_arrays(arrays)


def test_a_closed_loop_gets_as_many_sessions_as_it_takes_to_settle() -> None:
    trace = source("chat").load(0, 131072).trace
    few, many = loaded(trace, 2.0), loaded(trace, 8.0)
    for part in (few, many):
        first_s, last_s = measured_window_s(part)
        starts = np.unique(part.session_id, return_index=True)[1]
        length_s = np.zeros(int(part.session_id.max()) + 1)
        np.maximum.at(length_s, part.session_id, part.arrival_s)
        length_s[part.session_id[starts]] -= part.arrival_s[starts]
        spans = length_s[part.session_id[starts]]
        assert first_s > np.quantile(spans, 0.9)
        assert last_s == pytest.approx(4 * first_s)
    # Four times the rate settles in the same time, so it takes four times the sessions; each is whole.
    ratio = np.unique(many.session_id).size / np.unique(few.session_id).size
    assert ratio == pytest.approx(4, rel=0.1)
    counts = dict(zip(*np.unique(trace.session_id, return_counts=True), strict=True))
    assert all(counts[s] == n for s, n in zip(*np.unique(few.session_id, return_counts=True), strict=True))


def test_an_open_loop_is_kept_whole() -> None:
    small = str(Path(__file__).parent / "data" / "mooncake_small.jsonl")
    trace = source("mooncake_file", path=small, block_tokens=4).load(0, 131072).trace
    assert loaded(trace, 3.0).request_count == trace.request_count
