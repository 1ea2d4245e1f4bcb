"""Generators of agentic teams and of bursts of scans: sequences worked by hand, and what they are said to be like."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from trace_sources import PLENTY, chains, check_trace, source

from pipeline.spec import InputError
from pipeline.trace.base import LoadedTrace
from pipeline.trace.reuse import hit_ratio_curve, reuse_distances

LOGNORMAL = "pipeline.trace.draws.LogNormal"


def fixed(value: float) -> dict[str, Any]:
    return {"_target_": LOGNORMAL, "median": value, "sigma": 0, "maximum": value}


TEAM = {
    "lead_prefix_count": 1,
    "subagent_prefix_count": 1,
    "prefix_tokens": fixed(100),
    "task_tokens": fixed(10),
    "tool_result_tokens": fixed(20),
    "output_tokens": fixed(5),
    "summary_tokens": fixed(30),
    "compact_tokens": 10_000,
    "subagents_mean_count": 1,
    "subagent_turns_mean_count": 1,
    "block_tokens": 1,
}
LONG_LEADS = {"session_count": 30, "lead_turns_mean_count": 8}


def _rows(loaded: LoadedTrace, session: int) -> list[int]:
    return np.flatnonzero(loaded.trace.session_id == session).tolist()


def _sizes(loaded: LoadedTrace, session: int) -> list[tuple[int, int]]:
    trace = loaded.trace
    return [(int(trace.input_tokens[i]), int(trace.output_tokens[i])) for i in _rows(loaded, session)]


def test_subagents_share_their_own_prefix_and_not_the_leads_context() -> None:
    loaded = source("agentic", **TEAM, **LONG_LEADS, fan_out_ratio=1.0).load(0, PLENTY)
    check_trace(loaded)
    longest = max(range(30), key=lambda session: len(_rows(loaded, session)))
    # Lead 100 + 10 -> 5; a sub-agent of 100 + 10 -> 5; the lead again, 115 + a report of 5 + a tool's result of 20.
    assert _sizes(loaded, longest)[:6] == [(110, 5), (110, 5), (140, 5), (110, 5), (170, 5), (110, 5)]
    lead, helper, again, other = [chains(loaded)[i] for i in _rows(loaded, longest)[:4]]
    assert again[:115] == lead
    assert helper[:100] == other[:100]
    assert not set(helper) & set(again)
    assert not set(helper[100:]) & set(other[100:])
    everyones = {tuple(chains(loaded)[_rows(loaded, session)[0]][:100]) for session in range(30)}
    assert len(everyones) == 1


def test_the_lead_waits_for_all_subagents_of_a_turn() -> None:
    loaded = source("agentic", **TEAM | {"subagents_mean_count": 3}, **LONG_LEADS, fan_out_ratio=1.0).load(0, PLENTY)
    seen = set()
    for session in range(30):
        at = [i for i, (prompt, _) in enumerate(_sizes(loaded, session)) if prompt != 110 or i == 0]
        sizes = _sizes(loaded, session)
        for before, after in pairwise(at):
            helpers = after - before - 1
            seen.add(helpers)
            assert sizes[after][0] == sizes[before][0] + 5 + 5 * helpers + 20
    assert {1, 2, 3} <= seen


def test_a_full_context_is_summed_up_and_goes_on_from_the_shared_prefix() -> None:
    team = TEAM | {"compact_tokens": 150}
    loaded = source("agentic", **team, **LONG_LEADS, fan_out_ratio=0.0).load(0, PLENTY)
    check_trace(loaded)
    longest = max(range(30), key=lambda session: len(_rows(loaded, session)))
    # 110 -> 115, +20 = 135 -> 140, +20 = 160 -> 165: over 150. All 165 are sent for a summary of 30; then
    # 100 + 30 + 20 = 150 -> 155, over 150 again: 155 for a summary, and 150.
    expected = [(110, 5), (135, 5), (160, 5), (165, 30), (150, 5), (155, 30), (150, 5)]
    assert _sizes(loaded, longest)[:7] == expected
    full, asked, after = [chains(loaded)[i] for i in _rows(loaded, longest)[2:5]]
    assert asked[:165] == full
    assert after[:100] == full[:100]
    assert not set(after[100:]) & set(asked)


def test_a_summary_and_each_instruction_are_drawn_for_themselves() -> None:
    like_outputs = {"_target_": LOGNORMAL, "median": 300, "sigma": 0.5, "maximum": 2000}
    team = TEAM | {"output_tokens": like_outputs, "summary_tokens": like_outputs, "compact_tokens": 2500}
    loaded = source("agentic", **team, **LONG_LEADS, fan_out_ratio=0.0).load(0, PLENTY)
    outputs = [
        (mine[i][1], mine[i + 1][1])
        for mine in (_sizes(loaded, session) for session in range(30))
        for i in range(len(mine) - 1)
        if mine[i][0] > 2500
    ]
    assert len(outputs) > 10
    assert sum(summary == following for summary, following in outputs) < 2
    team = TEAM | {"task_tokens": like_outputs, "output_tokens": fixed(1)}
    loaded = source("agentic", **team, **LONG_LEADS, fan_out_ratio=1.0).load(0, PLENTY)
    instructions = [[prompt for prompt, _ in _sizes(loaded, session)[1::2]] for session in range(30)]
    several = [given for given in instructions if len(given) > 2]
    assert several
    assert all(len(set(given)) > 1 for given in several)


def test_contexts_stay_under_the_limit_but_for_one_turn() -> None:
    agents = source("agentic", session_count=100)
    trace = agents.load(0, PLENTY).trace
    limit = 60_000 + 4_096 + 16_000
    assert 60_000 < trace.input_tokens.max() <= limit
    assert (trace.input_tokens > 60_000).mean() < 0.05


def test_a_limit_that_a_summary_does_not_get_under_is_refused() -> None:
    with pytest.raises(InputError, match=r"trace.compact_tokens: given 130, expected more .* \(130\)"):
        source("agentic", **TEAM | {"compact_tokens": 130})


def test_a_team_uses_fifteen_times_the_tokens_of_a_chat() -> None:
    def tokens_per_session(option: str, seed: int) -> float:
        trace = source(option).load(seed, PLENTY).trace
        return float((trace.input_tokens + trace.output_tokens).sum() / np.unique(trace.session_id).size)

    teams, chats = (np.mean([tokens_per_session(o, seed) for seed in range(3)]) for o in ("agentic", "chat"))
    assert 0.8 * 15 <= teams / chats <= 1.2 * 15


def test_scans_leave_the_chats_as_they_are() -> None:
    few = {"session_count": 200}
    alone, mixed = source("chat", **few).load(3, PLENTY).trace, source("scan_burst", **few).load(3, PLENTY).trace
    chat = mixed.class_id == 0
    assert 0 < (~chat).sum() < 1000
    for name in ("input_tokens", "output_tokens", "think_s", "session_id"):
        np.testing.assert_array_equal(getattr(mixed, name)[chat], getattr(alone, name), err_msg=name)
    shift = mixed.arrival_s[chat] - alone.arrival_s
    np.testing.assert_allclose(shift, shift[0], rtol=0, atol=1e-9)


def test_a_scan_shares_nothing_and_comes_the_gap_after_the_one_before() -> None:
    loaded = source("scan_burst", session_count=500, burst_gap_s=0.25, block_tokens=16).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    scan = np.flatnonzero(trace.class_id == 1)
    listed = chains(loaded)
    blocks = [block for i in scan.tolist() for block in listed[i]]
    assert len(set(blocks)) == len(blocks) > 0
    assert not set(blocks) & {block for i in np.flatnonzero(trace.class_id == 0).tolist() for block in listed[i]}
    for session in np.unique(trace.session_id[scan]).tolist():
        mine = _rows(loaded, session)
        assert session >= 500
        assert np.isnan(trace.think_s[mine[0]])
        assert (trace.think_s[mine[1:]] == 0.25).all()
        np.testing.assert_allclose(np.diff(trace.arrival_s[mine]), 0.25, rtol=0, atol=1e-9)


def test_bursts_are_a_poisson_process_of_geometric_bursts() -> None:
    options = {"session_count": 20_000, "turns_mean_count": 1, "bursts_per_s": 0.1, "burst_mean_count": 5}
    trace = source("scan_burst", **options).load(0, PLENTY).trace
    scan = trace.class_id == 1
    starts = trace.arrival_s[scan & np.isnan(trace.think_s)]
    last_chat_s = trace.arrival_s[~scan].max()
    assert starts.max() <= last_chat_s
    assert abs(starts.size / (0.1 * last_chat_s) - 1) < 0.06
    gaps = np.diff(starts)
    assert abs(gaps.mean() - 10) < 1
    assert abs(gaps.std() - 10) < 1
    chat_gaps = np.diff(trace.arrival_s[~scan])[: gaps.size]
    assert abs(np.corrcoef(gaps, chat_gaps)[0, 1]) < 0.1
    assert abs(scan.sum() / starts.size - 5) < 0.3
    assert abs(np.log(trace.input_tokens[scan]).mean() - np.log(12_000)) < 0.02
    assert abs(np.log(trace.output_tokens[scan]).mean() - np.log(24)) < 0.02


def test_a_longer_burst_or_more_chats_change_no_other_burst() -> None:
    def scans(**options: Any) -> list[list[tuple[int, int]]]:
        loaded = source("scan_burst", bursts_per_s=0.03, **options).load(0, PLENTY)
        first_burst = int(options["session_count"])
        return [_sizes(loaded, s) for s in np.unique(loaded.trace.session_id).tolist() if s >= first_burst]

    few, many = scans(session_count=400), scans(session_count=1200)
    assert len(many) > len(few) > 1
    assert many[: len(few)] == few
    longer = scans(session_count=400, burst_mean_count=80)
    assert [burst[: len(short)] for burst, short in zip(longer, few, strict=True)] == few
    assert sum(map(len, longer)) > sum(map(len, few))


def test_bursts_make_lru_forget_what_chats_share() -> None:
    """A cache in which LRU keeps nearly all that chats reuse is too small for it once a burst has run through."""
    few = {"session_count": 600, "user_tokens": fixed(40), "output_tokens": fixed(40)}
    capacity = np.array([4_000])

    def chat_hits(option: str) -> float:
        trace = source(option, **few).load(0, PLENTY).trace
        of_chat = np.repeat(trace.class_id == 0, trace.input_tokens // trace.block_tokens)
        return float(hit_ratio_curve(reuse_distances(trace)[of_chat], capacity)[0])

    alone, mixed = chat_hits("chat"), chat_hits("scan_burst")
    assert alone - mixed > 0.02


def test_longer_subagents_change_no_session_without_any() -> None:
    def sessions(**options: Any) -> list[list[tuple[int, int]]]:
        loaded = source("agentic", session_count=80, **options).load(0, PLENTY)
        return [_sizes(loaded, session) for session in range(80)]

    none, some, longer = sessions(fan_out_ratio=0.0), sessions(), sessions(subagent_turns_mean_count=8)
    without = [session for session in range(80) if some[session] == none[session]]
    assert 10 < len(without) < 70
    assert all(longer[session] == some[session] for session in without)
    assert all(longer[session][0] == some[session][0] for session in range(80))
    assert sum(map(len, longer)) > sum(map(len, some))
