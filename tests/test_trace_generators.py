"""Generators: shared prefixes block by block, draws keyed by session and turn, distributions as documented."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from trace_sources import PLENTY, chains, check_trace, quality, source

from pipeline.spec import InputError
from pipeline.trace.base import LoadedTrace
from pipeline.trace.draws import SLOTS, Draws, LogNormal, choose, geometric, uniforms, zipf_cumulative
from pipeline.trace.reuse import infinite_cache_hit_tokens
from pipeline.trace.sessions import Lines, Prefix

OPTIONS = ["chat", "agent", "document_qa", "scan_burst", "agentic"]
CLASSES = {"scan_burst": ("chat", "scan")}
TURNS = {"agentic": "lead_turns_mean_count"}
LOGNORMAL = "pipeline.trace.draws.LogNormal"


def fixed(value: float) -> dict[str, Any]:
    return {"_target_": LOGNORMAL, "median": value, "sigma": 0, "maximum": 1e6}


def _turns(loaded: LoadedTrace, session: int) -> list[tuple[int, int]]:
    mine = loaded.trace.session_id == session
    return list(zip(loaded.trace.input_tokens[mine].tolist(), loaded.trace.output_tokens[mine].tolist(), strict=True))


@pytest.mark.parametrize("option", OPTIONS)
def test_a_generated_trace_keeps_the_contract(option: str) -> None:
    loaded = source(option).load(0, 131072)
    check_trace(loaded)
    trace = loaded.trace
    assert 10_000 < trace.request_count < 40_000
    assert trace.has_prefixes
    assert trace.classes == CLASSES.get(option, (option,))
    assert set(trace.class_id.tolist()) == set(range(len(trace.classes)))
    first = np.unique(trace.session_id, return_index=True)[1]
    assert np.isnan(trace.think_s[first]).all()
    later = np.delete(np.arange(trace.request_count), first)
    assert (trace.think_s[later] > 0).all()
    order = np.argsort(trace.session_id, kind="stable")
    steps_s, think_s = np.diff(trace.arrival_s[order]), trace.think_s[order][1:]
    inside = ~np.isnan(think_s)
    np.testing.assert_allclose(steps_s[inside], think_s[inside], rtol=0, atol=1e-9)
    full = (trace.input_tokens + trace.output_tokens) // trace.block_tokens
    np.testing.assert_array_equal(np.diff(trace.block_offset), full)
    assert quality(loaded.quality)["read"][0] == trace.request_count
    assert loaded.quality.column("path").to_pylist()[0] == "generated"


def test_a_chat_by_hand() -> None:
    """System prompt 10, message 6, answer 5, blocks of 4: block 0 and 1 are shared, block 2 holds tokens 8 to 11."""
    sizes = {"system_prompt_tokens": fixed(10), "user_tokens": fixed(6), "output_tokens": fixed(5)}
    turns = {"turns_mean_count": 2, "session_count": 5, "system_prompt_count": 1, "block_tokens": 4}
    loaded = source("chat", **sizes, **turns).load(3, PLENTY)
    check_trace(loaded)
    listed = dict(enumerate(chains(loaded)))
    own: set[int] = set()
    for session in range(5):
        of_session = [listed[i] for i in np.flatnonzero(loaded.trace.session_id == session)]
        assert _turns(loaded, session) == [(16 + 11 * t, 5) for t in range(len(of_session))]
        for before, after in pairwise(of_session):
            assert after[: len(before)] == before
        assert [len(chain) for chain in of_session] == [(21 + 11 * t) // 4 for t in range(len(of_session))]
        assert of_session[-1][:2] == [0, 1]
        assert not own & set(of_session[-1][2:])
        own |= set(of_session[-1][2:])
    assert max(loaded.trace.session_id) == 4
    # Every turn finds all full blocks of the turn before, answer included, and a session's first the system prompt.
    first = np.unique(loaded.trace.session_id, return_index=True)[1]
    hits = infinite_cache_hit_tokens(loaded.trace)
    earlier = loaded.trace.input_tokens - 6
    earlier[first] = 10
    earlier[0] = 0
    np.testing.assert_array_equal(hits, earlier // 4 * 4)


def test_an_agents_subtask_branches_from_its_parent() -> None:
    sizes = {
        "tool_prefix_count": 1,
        "tool_prefix_tokens": fixed(100),
        "task_tokens": fixed(10),
        "tool_result_tokens": fixed(20),
        "output_tokens": fixed(5),
    }
    shape = {"turns_mean_count": 1, "subtask_turns_mean_count": 1, "subtask_ratio": 1.0, "session_count": 1}
    loaded = source("agent", **sizes, **shape, block_tokens=1).load(0, PLENTY)
    # Parent: prefix 100 + task 10 -> output 5. Sub-task: those 115 + instruction 10 -> output 5.
    assert _turns(loaded, 0) == [(110, 5), (125, 5)]
    assert chains(loaded) == [list(range(115)), list(range(130))]
    # A second turn of the parent reads 115 + 20 of tool result + the sub-task's report of 5, not the sub-task itself.
    many = source("agent", **sizes, **shape | {"turns_mean_count": 3, "session_count": 20}, block_tokens=1)
    loaded = many.load(0, PLENTY)
    check_trace(loaded)
    session = next(s for s in range(20) if len(_turns(loaded, s)) > 2)
    assert _turns(loaded, session)[:3] == [(110, 5), (125, 5), (140, 5)]
    parent, branch, back = [chains(loaded)[i] for i in np.flatnonzero(loaded.trace.session_id == session)[:3]]
    assert branch[:115] == parent[:115] == back[:115]
    assert not set(branch[115:]) & set(back[115:])


def test_a_subtask_draws_for_itself() -> None:
    changes = {"turns_mean_count": 1, "subtask_turns_mean_count": 1, "subtask_ratio": 1.0, "session_count": 50}
    loaded = source("agent", **changes).load(0, PLENTY)
    outputs = [[output for _, output in _turns(loaded, session)] for session in range(50)]
    assert sum(parent == branch for parent, branch in outputs) < 5


def test_blocks_of_an_output_behind_a_clipped_prompt_are_forgotten() -> None:
    sizes = {"system_prompt_tokens": fixed(10), "user_tokens": fixed(6), "output_tokens": fixed(5)}
    trace = source("chat", **sizes, block_tokens=4, too_long="clip").load(0, 20).trace
    # Context 20: first turns (16, 5) keep their prompt and 4 output tokens: 5 blocks. Later prompts are cut to 19, and
    # block 4 (tokens 16 to 19) would end with an output token that was never produced there.
    first = np.isnan(trace.think_s)
    listed = np.diff(trace.block_offset)
    assert (~first).any()
    assert set(zip(trace.input_tokens[first], trace.output_tokens[first], listed[first], strict=True)) == {(16, 4, 5)}
    assert set(zip(trace.input_tokens[~first], trace.output_tokens[~first], listed[~first], strict=True)) == {
        (19, 1, 4)
    }


def test_document_readers_share_the_document_and_all_documents_the_instruction() -> None:
    sizes = {"instruction_tokens": 8, "document_tokens": fixed(16), "question_tokens": fixed(4)}
    options = sizes | {"document_count": 3, "turns_mean_count": 1, "session_count": 60, "block_tokens": 4}
    loaded = source("document_qa", **options, output_tokens=fixed(4)).load(0, PLENTY)
    check_trace(loaded)
    assert set(loaded.trace.input_tokens.tolist()) == {28}
    listed = chains(loaded)
    assert {tuple(chain[:2]) for chain in listed} == {(0, 1)}
    documents = [tuple(chain[2:6]) for chain in listed]
    assert len(set(documents)) == 3
    assert len({tuple(chain[6:]) for chain in listed}) == 60
    popular = sorted(map(documents.count, set(documents)), reverse=True)
    assert popular[0] > 1.5 * popular[2]


@pytest.mark.parametrize("option", OPTIONS)
def test_more_sessions_or_a_longer_one_change_no_other_draw(option: str) -> None:
    few, many = (source(option, session_count=n).load(0, PLENTY) for n in (20, 60))
    assert [_turns(few, s) for s in range(20)] == [_turns(many, s) for s in range(20)]
    for name in ("arrival_s", "think_s"):
        one = getattr(few.trace, name)[np.argsort(few.trace.session_id, kind="stable")]
        two = getattr(many.trace, name)[np.argsort(many.trace.session_id, kind="stable")]
        if option == "scan_burst":  # its bursts are numbered behind the chats, and go on with these
            one, two = one[np.sort(few.trace.session_id) < 20], two[np.sort(many.trace.session_id) < 20]
        two = two[: one.size]
        if name == "think_s":
            np.testing.assert_array_equal(one, two)
        else:  # each from its own first arrival, which is session 0's in both
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-9)
    longer = source(option, session_count=20, **{TURNS.get(option, "turns_mean_count"): 40}).load(0, PLENTY)
    assert any(len(_turns(longer, s)) > len(_turns(few, s)) for s in range(20))
    if option not in ("agent", "agentic"):  # an agent's sub-tasks end at another turn
        assert all(_turns(longer, s)[: len(_turns(few, s))] == _turns(few, s) for s in range(20))


@pytest.mark.parametrize("option", OPTIONS)
def test_same_seed_same_bytes_other_seed_other_trace(option: str) -> None:
    one, two, other = (source(option, session_count=30).load(seed, PLENTY).trace for seed in (0, 0, 1))
    for name in ("arrival_s", "think_s", "input_tokens", "output_tokens", "block_offset", "block_ids", "session_id"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes(), name
        assert getattr(one, name).tobytes() != getattr(other, name).tobytes(), name


def test_turns_that_outgrow_the_context_are_dropped_and_counted() -> None:
    whole, cut = source("agent").load(0, PLENTY), source("agent").load(0, 32768)
    check_trace(cut)
    dropped, first_rows = quality(cut.quality)["dropped: prompt and output longer than the model's context"]
    assert dropped == whole.trace.request_count - cut.trace.request_count > 100
    assert len(first_rows) > 2
    assert (cut.trace.input_tokens + cut.trace.output_tokens).max() <= 32768
    first = np.unique(cut.trace.session_id, return_index=True)[1]
    assert np.isnan(cut.trace.think_s[first]).all()
    assert np.isnan(cut.trace.think_s).sum() == first.size
    with pytest.raises(InputError, match="generated, row "):
        source("agent", too_long="refuse").load(0, 32768)
    with pytest.raises(InputError, match="generated: no request is left of"):
        source("agent").load(0, 100)


def test_draws_depend_on_their_key_alone() -> None:
    draws = Draws(7, "x", 3)
    late, early = draws.at(1000, 2), draws.at(0, 5)
    assert Draws(7, "x", 3).at(0, 5) == early
    assert Draws(7, "x", 3).at(1000, 2) == late
    np.testing.assert_array_equal(uniforms(7, "x", 5000, 3)[: SLOTS * 3], uniforms(7, "x", SLOTS * 3, 3))
    keys = [(7, "x", 3), (8, "x", 3), (7, "y", 3), (7, "x", 4), (7 + 2**32, "x", 3), (-7, "x", 3)]
    assert len({Draws(*key).at(0, 0) for key in keys}) == len(keys)
    streams = [set(uniforms(7, "x", 2000, session).tolist()) for session in range(5)]
    assert len(set.union(*streams)) == 10_000, "streams of sessions overlap"


def test_distributions_are_the_documented_ones() -> None:
    draws = uniforms(0, "test", 20_000).tolist()
    assert abs(np.mean(draws) - 0.5) < 0.01
    logs = np.log([LogNormal(median=80, sigma=1.2, maximum=1e9).value(u) for u in draws])
    assert abs(logs.mean() - math.log(80)) < 0.03
    assert abs(logs.std() - 1.2) < 0.03
    assert LogNormal(median=80, sigma=1.2, maximum=90).value(0.9) == 90
    assert LogNormal(median=80, sigma=0, maximum=90).whole(0.3) == 80
    assert LogNormal(median=1e-9, sigma=0, maximum=90).whole(0.3) == 1
    assert LogNormal(median=1e300, sigma=10, maximum=90).value(1 - 2**-53) == 90
    turns = np.array([geometric(5, u) for u in draws])
    assert turns.min() == 1
    assert abs(turns.mean() - 5) < 0.1
    assert abs((turns == 1).mean() - 0.2) < 0.01
    assert {geometric(1, u) for u in draws[:10]} == {1}
    cumulative = zipf_cumulative(4, 1.0)
    np.testing.assert_allclose(cumulative, np.array([12, 18, 22, 25]) / 25)
    assert [choose(cumulative, u) for u in (2**-53, 0.479, 0.481, 0.87, 0.89, 1 - 2**-53)] == [0, 0, 1, 2, 3, 3]


def test_session_starts_are_a_poisson_process() -> None:
    trace = source("chat", session_count=4000, turns_mean_count=1, sessions_per_s=2.0).load(0, PLENTY).trace
    gaps = np.diff(trace.arrival_s)
    assert abs(gaps.mean() - 0.5) < 0.03
    assert abs(gaps.std() - 0.5) < 0.03


def test_lines_that_branch_twice() -> None:
    lines = Lines()
    root = lines.add()
    middle = lines.add(Prefix(root, 10))
    leaf = lines.add(Prefix(middle, 21))
    offset, ids = lines.chains(np.array([leaf, middle, root, root]), np.array([7, 6, 3, 0]), 4)
    assert offset.tolist() == [0, 7, 13, 16, 16]
    assert (ids >> 32).tolist() == [0, 0, 1, 1, 1, 2, 2, 0, 0, 1, 1, 1, 1, 0, 0, 0]
    assert (ids & (2**32 - 1)).tolist() == [*range(7), *range(6), *range(3)]


@pytest.mark.parametrize(
    ("option", "changes", "message"),
    [
        ("chat", {"session_count": 0}, "trace.session_count: given 0"),
        ("chat", {"sessions_per_s": 0}, "trace.sessions_per_s: given 0"),
        ("chat", {"turns_mean_count": 0.5}, "trace.turns_mean_count: given 0.5"),
        ("agent", {"subtask_ratio": 1.5}, "trace.subtask_ratio: given 1.5"),
        ("document_qa", {"zipf_exponent": -1}, "trace.zipf_exponent: given -1"),
        ("chat", {"user_tokens": fixed(0)}, "trace.user_tokens.median: given 0"),
    ],
)
def test_parameters_have_ranges(option: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        source(option, **changes)
    assert message in str(refused.value)
