"""Requests inferred from captured KV-cache events."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from trace_sources import PLENTY, SAMPLES, chains, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace.base import LoadedTrace


def read(*batches: Any, **changes: Any) -> LoadedTrace:
    lines = [json.dumps(batch).encode() + b"\n" for batch in batches]
    loaded = load_lines("vllm_kv_events", lines, **{"block_tokens": 2} | changes)
    check_trace(loaded)
    return loaded


def stored(time_s: float, hashes: list[Any], parent: Any = None, **fields: Any) -> dict[str, Any]:
    """A batch with one event, whose tokens are the hashes of its blocks, twice each."""
    event = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": [value for value in hashes for _ in range(2)],
        "block_size": 2,
    }
    return {"ts": time_s, "events": [event | fields]}


def lengths(loaded: LoadedTrace) -> list[tuple[int, int]]:
    return list(zip(loaded.trace.input_tokens.tolist(), loaded.trace.output_tokens.tolist(), strict=True))


def test_sample() -> None:
    path = str(SAMPLES / "vllm_kv_events_small.jsonl")
    loaded = source("vllm_kv_events", path=path, block_tokens=4).load(0, PLENTY)
    check_trace(loaded)
    # Two chunks and two blocks of output; a second prompt behind the first chunk; a next turn behind the output; one
    # block long after, which is no output any more; and the first chunk again on another rank.
    assert loaded.trace.arrival_s.tolist() == [0, 1, 3, 20, 20]
    assert lengths(loaded) == [(16, 8), (12, 8), (32, 8), (36, 8), (8, 8)]
    assert chains(loaded) == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 6],
        [0, 1, 2, 3, 4, 5, 7, 8],
        [0, 1, 2, 3, 4, 5, 7, 8, 9],
        [0, 1],
    ]
    assert np.isnan(loaded.trace.think_s).all()
    assert loaded.trace.session_id.tolist() == [0, 1, 2, 3, 4]
    assert quality(loaded.quality) == {
        "read": (6, "[1, 4, 6, 7, 8]"),
        "kept": (5, "[1, 4, 6, 8, 9]"),
        "changed: answer filled no block, short_output_tokens stands in": (4, "[4, 6, 8, 9]"),
        "dropped: request on blocks from before the capture": (1, "[7]"),
        "ignored: blank line": (1, "[5]"),
        "ignored: blocks stored on another medium": (1, "[3]"),
        "ignored: cleared cache": (1, "[7]"),
        "ignored: more blocks of a request": (3, "[2, 3, 4]"),
        "ignored: removed blocks": (1, "[6]"),
    }


def test_the_gap_ends_a_request() -> None:
    batches = [stored(0, [1, 2]), stored(2, [3], 2), stored(4.5, [4], 3)]
    assert lengths(read(*batches, chain_gap_s=2.5)) == [(4, 4)]
    # 2.5 s without a block: the last one is the prompt of another request.
    assert lengths(read(*batches, chain_gap_s=2.4, short_output_tokens=1)) == [(4, 2), (8, 1)]


def test_two_requests_behind_one_parent_go_on_one_each() -> None:
    twice = [stored(0, [1, 2]), stored(0, [1, 2]), stored(1, [3], 2), stored(1, [4], 2), stored(2, [5], 4)]
    loaded = read(*twice)
    assert lengths(loaded) == [(4, 2), (4, 4)]
    assert chains(loaded) == [[0, 1, 2], [0, 1, 3, 4]]


def test_several_blocks_behind_output_are_a_next_turn_and_leave_the_request_open() -> None:
    loaded = read(stored(0, [1, 2]), stored(1, [3], 2), stored(2, [4, 5], 3), stored(3, [6], 3))
    assert lengths(loaded) == [(4, 4), (10, 8)]
    assert chains(loaded) == [[0, 1, 2, 3], [0, 1, 2, 4, 5]]


def test_ranks_have_requests_of_their_own_and_blocks_in_common() -> None:
    other = stored(1, [9], 7) | {"data_parallel_rank": 1}
    loaded = read(
        stored(0, [1, 2]), stored(0, [7], token_ids=[1, 1]) | {"data_parallel_rank": 1}, other, stored(1, [3], 2)
    )
    assert lengths(loaded) == [(4, 2), (2, 2)]
    assert chains(loaded) == [[0, 1, 2], [0, 3]]
    alike = [stored(0, [1, 2]) | {"data_parallel_rank": rank} for rank in (0, 1)]
    assert lengths(read(*alike, stored(1, [3], 2) | {"data_parallel_rank": 1})) == [(4, 8), (4, 2)]


def test_what_follows_an_unknown_parent_is_unknown() -> None:
    loaded = read(
        stored(0, [5, 6], 4), stored(1, [7], 6), stored(50, [8], 7), stored(60, [1]), stored(61, [5, 6], 1),
        stored(62, [9, 9], 6),
    )  # fmt: skip
    assert lengths(loaded) == [(10, 8)]
    assert quality(loaded.quality)["dropped: request on blocks from before the capture"] == (2, "[1, 3]")


def test_hashes_may_be_wide_negative_or_text_and_tokens_missing() -> None:
    values = [2**255 + 1, -(2**63), "aGk=", "00ff"]
    loaded = read(
        stored(0, values[:2], token_ids=[]),
        stored(1, values[2:], values[1], token_ids=None),
        stored(2, values[:2], token_ids=[]),
    )
    assert chains(loaded) == [[0, 1, 2, 3], [0, 1]]


def test_blocks_of_other_adapters_or_images_are_others() -> None:
    images = ({"extra_keys": [["image 1"]]}, {"extra_keys": [["image 2"]]}, {"extra_keys": None})
    fields: list[dict[str, Any]] = [{}, {"lora_id": 1}, {"lora_name": "a"}, *images]
    same = [stored(at, [1], **given) for at, given in enumerate(fields)]
    assert chains(read(*same)) == [[0], [1], [2], [3], [4], [0]]


def test_events_that_store_nothing_here_are_counted() -> None:
    loaded = read(
        stored(0, [1]), stored(0, [1], group_idx=1), stored(0, [1], medium="cpu"), stored(0, []),
        [0, [["BlockStored", [1], None, [1, 1], 2, None, "GPU", None, None, 2], ["BlockRemoved", [1]]]],
    )  # fmt: skip
    counts = quality(loaded.quality)
    assert counts["ignored: blocks of another cache group"] == (2, "[2, 5]")
    assert counts["ignored: blocks stored on another medium"] == (1, "[3]")
    assert counts["ignored: no blocks stored"] == (1, "[4]")
    assert counts["read"] == (1, "[1]")


def test_long_chains_are_followed() -> None:
    batches = [stored(at, [at], at - 1 if at else None) for at in range(5000)]
    assert lengths(read(*batches)) == [(2, 9998)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"ts": 1}, "line: given {'ts': 1}, expected one JSON batch of events"),
        ([1, 2], "line: given [1, 2], expected one JSON batch"),
        (stored(-1, [1]), "ts: given -1, expected a time from 0"),
        (stored(1, [1]) | {"ts": "1"}, "ts: given '1', expected a number"),
        (stored(1, [1]) | {"data_parallel_rank": "a"}, "data_parallel_rank: given 'a', expected an integer"),
        (stored(1, [1.5]), "block_hashes: given 1.5, expected an integer or text"),
        (stored(1, [True]), "block_hashes: given True, expected an integer or text"),
        (stored(1, [1], [2]), "parent_block_hash: given [2], expected an integer or text"),
        (stored(1, [1], block_hashes=None), "block_hashes: given None, expected a list"),
        (stored(1, [1], block_size=4), "block_size: given 4, expected 2 (trace.block_tokens)"),
        (stored(1, [1], token_ids=[1, 2, 3]), "token_ids: given 3, expected 2 for each of 1 blocks"),
        (stored(1, [1], token_ids=[-1, 1]), "token_ids: given [-1, 1], expected a list of integers"),
        (stored(1, [1], extra_keys=[1, 2]), "extra_keys: given [1, 2], expected a list of 1"),
        ([1, [["BlockMoved", [1]]]], "events: given ['BlockMoved', [1]], expected BlockStored, BlockRemoved or All"),
        ([1, [[]]], "events: given [], expected BlockStored"),
        ([1, [7]], "events: given 7, expected BlockStored"),
    ],
)
def test_a_bad_batch_is_refused_or_dropped_whole(line: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(stored(0, [1]), line)
    assert str(refused.value).startswith("memory, row 2: ")
    assert message in str(refused.value)
    good_too = (
        line
        if not isinstance(line, dict) or "events" not in line
        else line | {"events": [*stored(0, [8])["events"], *line["events"]]}
    )
    assert lengths(read(stored(0, [1]), good_too, bad_rows="drop")) == [(2, 8)]
