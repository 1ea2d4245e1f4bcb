"""The fit of the chat generator: samples by hand, parameters found again, and a verdict that tells a wrong model."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from scipy.stats import ks_2samp
from trace_sources import PLENTY, chains, source

from pipeline.spec import InputError, build
from pipeline.trace.base import TraceSource
from pipeline.trace.fit import Fit, fit_chat, fit_report, goodness, ks_distance, option_text
from pipeline.trace.observed import halves, observe, shared_prefixes
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.selection import take

LOGNORMAL = "pipeline.trace.draws.LogNormal"
NAN = float("nan")


class Call(NamedTuple):
    session: int
    input_tokens: int
    output_tokens: int = 1
    blocks: tuple[int, ...] = ()
    think_s: float = NAN
    arrival_s: float = 0


def trace_of(*calls: Call) -> RequestTrace:
    """Blocks of 10 tokens."""
    return RequestTrace(
        name="by hand",
        block_tokens=10,
        classes=("a",),
        request_id=np.arange(len(calls)),
        session_id=np.array([c.session for c in calls]),
        class_id=np.zeros(len(calls), np.int64),
        arrival_s=np.array([c.arrival_s for c in calls], np.float64),
        think_s=np.array([c.think_s for c in calls], np.float64),
        input_tokens=np.array([c.input_tokens for c in calls]),
        output_tokens=np.array([c.output_tokens for c in calls]),
        block_offset=np.concatenate([[0], np.cumsum([len(c.blocks) for c in calls])]).astype(np.int64),
        block_ids=np.array([*chain.from_iterable(c.blocks for c in calls)], np.int64),
        has_prefixes=True,
    )


def lognormal(median: float, sigma: float, maximum: float = 1e6) -> dict[str, Any]:
    return {"_target_": LOGNORMAL, "median": median, "sigma": sigma, "maximum": maximum}


def generated(option: str, seed: int = 1, **changes: Any) -> RequestTrace:
    return source(option, **changes).load(seed, PLENTY).trace


def differences(rows: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(row["measure"], row["statistic"]): row["difference"] for row in rows}


def test_later_turns_by_kind() -> None:
    trace = trace_of(
        Call(0, 25, 5, (0, 1)),
        Call(7, 99, 1, (20, 21, 22, 23, 24, 25, 26, 27, 28)),  # of another session, in between
        Call(0, 42, 5, (0, 1, 2, 3)),  # 25 + 5 + 12: continues
        Call(0, 47, 5, (0, 1, 2, 3)),  # 42 + 5 and nothing new: forgets
        Call(0, 60, 5, (0, 1, 2, 4, 5, 6)),  # all but the last full block of 47 tokens, 52 + 8: continues
        Call(0, 70, 5, (0, 1, 2, 4, 8, 9, 10)),  # 65 + 5, but the fifth of six blocks is another: differs
        Call(0, 69, 5, (0, 1, 2, 4, 8, 9)),  # shrinks
        Call(0, 80, 5),  # without its blocks: differs
    )
    seen = observe(trace)
    assert seen.later == {"shrinks": 1, "differs": 2, "forgets": 1, "continues": 2}
    assert seen.new_tokens.tolist() == [12, 8]
    assert seen.turns_count.tolist() == [7, 1]
    assert seen.first_prompt_tokens.tolist() == [25, 99]
    assert seen.output_tokens.tolist() == trace.output_tokens.tolist()


def test_without_prefixes_lengths_alone_tell() -> None:
    trace = trace_of(Call(0, 25, 5), Call(0, 42, 5), Call(0, 41, 5), Call(0, 46, 5))
    assert observe(trace).later == {"shrinks": 1, "differs": 0, "forgets": 1, "continues": 1}


def test_think_times_are_the_traces_own_or_gaps_between_arrivals() -> None:
    calls = [Call(0, 5, arrival_s=1), Call(1, 5, arrival_s=2), Call(0, 9, arrival_s=4.5), Call(1, 9, arrival_s=9)]
    assert sorted(observe(trace_of(*calls)).think_s.tolist()) == [3.5, 7]
    closed = [call._replace(think_s=think_s) for call, think_s in zip(calls, (NAN, NAN, 0.5, 2), strict=True)]
    assert sorted(observe(trace_of(*closed)).think_s.tolist()) == [0.5, 2]


def test_shared_prefixes_by_hand() -> None:
    trace = trace_of(
        Call(5, 38, 9, (0, 1, 2, 3)),  # shares 0 and 1 with session 3; 3 is its answer's
        Call(3, 24, 1, (0, 1)),
        Call(4, 30, 1, (6, 7, 8)),  # alone in its first prompt
        Call(5, 60, 1, (0, 1, 2, 6, 7)),  # no first turn
        Call(2, 10, 10, (9, 3)),
        Call(1, 10, 1, (9,)),  # 9 alone makes up the prompt
        Call(6, 25, 1, (9, 3)),  # share what session 2's answer made, which is not in its prompt
        Call(7, 26, 1, (9, 3)),
    )
    shared = shared_prefixes(trace)
    numbers = dict(zip((1, 2, 3, 4, 5, 6, 7), shared.prefix.tolist(), strict=True))
    assert numbers[4] == -1
    assert numbers[5] == numbers[3] != numbers[1] == numbers[2] != numbers[6] == numbers[7]
    # Between 20 full tokens and the 23 that leave one to the prompt of 24; and 10, which is all there is.
    assert shared.tokens[numbers[5]] == 23
    assert shared.tokens[numbers[1]] == 10


def test_halves_hold_whole_sessions_drawn_by_number_and_seed() -> None:
    trace = generated("chat", session_count=2000)
    one, other = halves(trace, 0)
    mine, others = set(one.session_id.tolist()), set(other.session_id.tolist())
    assert not mine & others
    assert one.request_count + other.request_count == trace.request_count
    assert abs(len(mine) - 1000) < 100
    few = take(trace, np.flatnonzero(trace.session_id < 100))
    assert set(halves(few, 0)[0].session_id.tolist()) == {session for session in mine if session < 100}
    again = set(halves(trace, 1)[0].session_id.tolist())
    assert abs(len(mine & again) - 500) < 80


def test_parameters_of_a_generated_chat_are_found_again() -> None:
    given = {
        "system_prompt_count": 5,
        "turns_mean_count": 5.0,
        "first_user_tokens": lognormal(900, 0.7),
        "user_tokens": lognormal(250, 1.1),
        "output_tokens": lognormal(150, 0.6),
        "think_s": lognormal(20, 1.3),
        "sessions_per_s": 2.0,
        "session_count": 4000,
    }
    trace = generated("chat", **given)
    fit = fit_chat(trace, 0)
    model = fit.model
    assert model.system_prompt_count == 5
    assert model.session_count == 4000
    assert model.sessions_per_s == pytest.approx(2.0, rel=0.05)
    assert model.turns_mean_count == pytest.approx(5.0, rel=0.05)
    for name in ("first_user_tokens", "user_tokens", "output_tokens", "think_s"):
        found = getattr(model, name)
        assert found.median == pytest.approx(given[name]["median"], rel=0.06), name  # type: ignore[index]
        assert found.sigma == pytest.approx(given[name]["sigma"], rel=0.06), name  # type: ignore[index]
    sessions = np.unique(halves(trace, 0)[0].session_id).size
    assert fit.counts["sessions"] == fit.counts["sessions that share a prefix"] == sessions
    assert fit.counts["later turns: continues"] > 0
    assert sum(many for what, many in fit.counts.items() if what.startswith("later")) == (
        halves(trace, 0)[0].request_count - sessions
    )


def test_lengths_of_system_prompts_are_found_to_a_few_tokens() -> None:
    fixed = lognormal(810, 0, 1e6)
    model = fit_chat(generated("chat", system_prompt_tokens=fixed, user_tokens=lognormal(60, 1.0)), 0).model
    assert 810 <= model.system_prompt_tokens.median <= 814
    assert model.system_prompt_tokens.sigma < 0.005


def test_only_its_half_of_the_sessions_is_fitted_to() -> None:
    trace = generated("chat", session_count=300)
    held = np.isin(trace.session_id, halves(trace, 0)[1].session_id)
    spoilt = replace(trace, output_tokens=np.where(held, 1, trace.output_tokens), think_s=trace.think_s * (1 + held))
    assert fit_chat(spoilt, 0) == fit_chat(trace, 0)
    assert fit_chat(spoilt, 1) != fit_chat(trace, 1)


def test_an_open_loop_is_fitted_by_its_gaps() -> None:
    trace = generated("chat", session_count=500)
    closed = fit_chat(trace, 0).model
    opened = fit_chat(replace(trace, think_s=np.full(trace.request_count, NAN)), 0).model
    assert opened.think_s.median == pytest.approx(closed.think_s.median, rel=1e-3)
    assert opened.think_s.sigma == pytest.approx(closed.think_s.sigma, rel=1e-3)


def test_without_shared_prefixes_prompts_are_each_users_own() -> None:
    trace = generated("chat", session_count=400, system_prompt_count=400, system_prompt_tokens=lognormal(1, 0))
    model = fit_chat(trace, 0).model
    assert (model.system_prompt_count, model.system_prompt_tokens.median) == (1, 1)
    assert model.first_user_tokens is not None
    assert model.first_user_tokens.median == pytest.approx(300, rel=0.2)


def test_a_right_model_is_near_in_every_measure() -> None:
    trace = generated("chat", system_prompt_tokens=lognormal(800, 0))
    found = differences(fit_report(trace, 0, "2026-12-01")[0])
    distances = {measure: value for (measure, name), value in found.items() if name == "ks_distance"}
    assert len(distances) == 5
    assert max(distances.values()) < 0.06, distances
    curve = [abs(value) for (measure, _), value in found.items() if measure == "lru_hit_ratio"]
    assert len(curve) == 6
    assert max(curve) < 0.06
    assert found["later_turns", "continues"] == 0


def test_a_model_of_other_traffic_is_far_off() -> None:
    """Questions about documents, taken for chat: their sizes are not those of chats."""
    questions, chats = generated("document_qa", session_count=2000), generated("chat", session_count=1000)
    model = fit_chat(questions, 0).model
    found = differences(goodness(chats, model.load(0, PLENTY).trace))
    assert found["new_tokens", "ks_distance"] > 0.5
    assert found["first_prompt_tokens", "ks_distance"] > 0.5
    assert found["output_tokens", "ks_distance"] > 0.2


def test_what_chat_cannot_express_shows() -> None:
    """Documents are read by Zipf's law, not evenly; contexts of agents are compacted, and those of sub-agents others'.

    Turns, questions and answers of document QA are those of a chat, and fit as such.
    """
    documents = differences(fit_report(generated("document_qa"), 0, "2026-12-01")[0])
    assert documents["new_tokens", "ks_distance"] < 0.05
    assert documents["first_prompt_tokens", "ks_distance"] > 0.1
    assert documents["lru_hit_ratio", "capacity_ratio_0.1"] > 0.1
    teams = differences(fit_report(generated("agentic"), 0, "2026-12-01")[0])
    assert teams["later_turns", "continues"] > 0.15
    assert teams["turns_count", "ks_distance"] > 0.1


def test_statistics_of_small_traces() -> None:
    one = trace_of(Call(0, 25, 4), Call(0, 42, 2, think_s=3), Call(1, 35, 3))
    two = trace_of(Call(0, 25, 4), Call(1, 35, 4))
    rows = {(row["measure"], row["statistic"]): row for row in goodness(one, two)}
    assert rows["turns_count", "mean"] == {
        "measure": "turns_count",
        "statistic": "mean",
        "trace": 1.5,
        "generated": 1.0,
        "difference": -0.5,
    }
    assert rows["turns_count", "ks_distance"]["difference"] == 0.5
    assert rows["output_tokens", "p50"]["trace"] == 3
    assert rows["think_s", "count"]["generated"] == 0
    assert rows["think_s", "p90"]["generated"] is None
    assert rows["think_s", "ks_distance"]["difference"] is None
    assert rows["later_turns", "continues"]["trace"] == 1


def test_reuse_curve_has_every_look_up_of_known_blocks_at_full_capacity() -> None:
    calls = [Call(i, 30, 1, (0, 1, 2) if i % 2 else (3, 4, 5)) for i in range(6)]
    rows = {row["statistic"]: row["trace"] for row in goodness(trace_of(*calls), trace_of(*calls))}
    # 18 look-ups, 6 first ones; half the 6 blocks: LRU has lost each when it comes again.
    assert rows["capacity_ratio_1"] == pytest.approx(12 / 18)
    assert rows["capacity_ratio_0.5"] == 0


def test_ks_distance_is_that_of_scipy() -> None:
    random = np.random.default_rng(0)
    for sizes in ((1, 1), (5, 300), (200, 100)):
        one, two = (random.integers(0, 12, size) for size in sizes)
        assert ks_distance(one, two) == pytest.approx(ks_2samp(one, two).statistic, abs=1e-12)


def test_the_option_is_the_model() -> None:
    trace = generated("chat", session_count=300, sessions_per_s=1e-5)
    rows, text = fit_report(trace, 0, "2026-12-01")
    fit = fit_chat(trace, 0)
    assert build(yaml.safe_load(text), "trace", TraceSource) == fit.model
    assert set(yaml.safe_load(text)) == {"_target_", *type(fit.model).model_fields}
    first = text.splitlines()[0]
    assert first.startswith("#")
    assert f'{fit.counts["sessions"]} of the 300 sessions of trace "chat", 2026-12-01' in first
    counted = {row["statistic"]: row["trace"] for row in rows if row["measure"] == "fit"}
    assert {what: counted[what] for what in fit.counts} == fit.counts
    odd = fit.model.model_copy(update={"name": "a: b #c", "sessions_per_s": 1e-5})
    text = option_text(Fit(odd, fit.counts), "x\ny: 1", "today")
    assert build(yaml.safe_load(text), "trace", TraceSource) == odd


def test_turns_that_outgrow_the_traces_longest_request_are_counted() -> None:
    rows, _ = fit_report(generated("agentic", session_count=100), 0, "2026-12-01")
    (lost,) = [row["generated"] for row in rows if row["statistic"].startswith("dropped")]
    assert lost > 0


def test_think_times_of_nought_count_as_a_millisecond() -> None:
    calls = [Call(s, 20 + 20 * t, 5, think_s=0 if t else NAN, arrival_s=s + t / 9) for s in range(20) for t in (0, 1)]
    assert fit_chat(trace_of(*calls), 0).model.think_s.median == 0.001


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([Call(s, 20) for s in range(20)], "none with a turn that continues the one before"),
        ([Call(s, 20 - t) for s in range(20) for t in (0, 1)], "none with a turn that continues the one before"),
        ([Call(0, 20), Call(0, 40)], r"(none with a turn|none of which is left to judge by)"),
    ],
)
def test_a_trace_that_cannot_be_fitted_to_is_refused(calls: list[Call], message: str) -> None:
    for seed in range(4):
        with pytest.raises(InputError, match=f"trace by hand: given .*{message}"):
            fit_report(trace_of(*calls), seed, "2026-12-01")


@pytest.mark.data
def test_sessions_of_coding_agents(data: Path) -> None:
    """Counted again by comparing chains block by block; ids are a session's own, so no two share a prefix."""
    path = data / "traces" / "claude_code_sessions.jsonl.gz"
    loaded = source("claude_code", path=str(path)).load(0, PLENTY)
    trace, listed = loaded.trace, chains(loaded)
    counts, added = dict.fromkeys(("shrinks", "differs", "forgets", "continues"), 0), []
    before: dict[int, int] = {}
    for i, session in enumerate(trace.session_id.tolist()):
        if (j := before.get(session)) is not None:
            known = max(int(trace.input_tokens[j]) // 64 - 1, 0)
            new = int(trace.input_tokens[i] - trace.input_tokens[j] - trace.output_tokens[j])
            same = listed[i][:known] == listed[j][:known]
            shrinks = trace.input_tokens[i] < trace.input_tokens[j]
            kind = "shrinks" if shrinks else "differs" if not same else "forgets" if new < 1 else "continues"
            counts[kind] += 1
            added += [new] * (kind == "continues")
        before[session] = i
    seen = observe(trace)
    assert seen.later == counts
    assert sorted(seen.new_tokens.tolist()) == sorted(added)
    assert min(counts.values()) > 40
    rows, text = fit_report(trace, 0, "2026-12-01")
    assert yaml.safe_load(text)["system_prompt_count"] == 1
    found = differences(rows)
    assert found["new_tokens", "ks_distance"] < 0.1
    assert found["later_turns", "continues"] > 0.1
