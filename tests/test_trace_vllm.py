"""Logs of vLLM servers: requests, answers, and what their lines leave unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trace_sources import PLENTY, SAMPLES, chains, check_trace, load_lines, quality, source

from pipeline.spec import InputError
from pipeline.trace.base import LoadedTrace

SAMPLE = {"path": str(SAMPLES / "vllm_log_small.log"), "block_tokens": 4}
HEAD = "INFO 07-15 12:34:{:02} [logger.py:43] "


def read(*lines: str, **changes: Any) -> LoadedTrace:
    loaded = load_lines("vllm_log", [line.encode() + b"\n" for line in lines], **{"block_tokens": 4} | changes)
    check_trace(loaded)
    return loaded


def received(request: str, ids: str, prompt: str = "'hi'", sampling: str = "max_tokens=9", at: str = "") -> str:
    params = f"SamplingParams(n=1, stop=[], {sampling}, min_tokens=0)"
    return (at or HEAD.format(0)) + (
        f"Received request {request}: prompt: {prompt}, params: {params}, prompt_token_ids: {ids}, lora_request: None."
    )


def answered(request: str, ids: str, text: str = "'a'") -> str:
    return (
        HEAD.format(9) + f"Generated response {request}: output: {text}, output_token_ids: {ids}, finish_reason: stop"
    )


def test_sample() -> None:
    loaded = source("vllm_log", **SAMPLE).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    assert trace.arrival_s.tolist() == [0, 1, 4, 6]
    assert trace.input_tokens.tolist() == [6, 8, 10, 4]
    assert trace.output_tokens.tolist() == [3, 4, 1, 1]
    assert trace.session_id.tolist() == [0, 1, 2, 3]
    # The first answer fills the second block, which the third prompt finds again; that of a stream is not known; the
    # last prompt has another adapter.
    assert chains(loaded) == [[0, 1], [0, 2], [0, 1], [3]]
    assert quality(loaded.quality) == {
        "read": (6, "[11, 3, 5, 12, 14]"),
        "kept": (4, "[3, 5, 12, 15]"),
        "changed: arrival spread inside its second": (4, "[3, 5, 12, 15]"),
        "dropped: no response logged (trace.output=max_tokens does without)": (1, "[14]"),
        "dropped: request that generates nothing": (1, "[11]"),
        "ignored: end of a response": (4, "[7, 9, 13, 16]"),
        "ignored: other log line": (5, "[1, 2, 4, 10, 17]"),
        "ignored: part of a response": (2, "[6, 8]"),
        "noted: one output token, so no time per output token": (2, "[12, 15]"),
    }


def test_the_most_tokens_stand_in_for_answers() -> None:
    loaded = source("vllm_log", output="max_tokens", **SAMPLE).load(0, PLENTY)
    check_trace(loaded)
    assert loaded.trace.output_tokens.tolist() == [128, 64, 128, 32, 128]
    assert chains(loaded) == [[0], [0, 1], [0, 2], [], [3]]
    counts = quality(loaded.quality)
    assert counts["changed: length of the answer not known, max_tokens stands in"][0] == 5
    assert counts["ignored: response that is not needed"][0] == 6
    with pytest.raises(InputError, match="row 1: max_tokens: given None, expected a number"):
        read(received("a", "[1]", sampling="max_tokens=None"), output="max_tokens")
    assert read(received("a", "[1]", sampling="max_tokens=None"), answered("a", "[2]")).trace.request_count == 1


def test_newer_versions_log_prompts_and_answers_apart() -> None:
    head = "(APIServer pid=1) {} 02-29 23:59:59 [entrypoints/serve/utils/request_logger.py:53] "
    info, debug = head.format("INFO"), head.format("DEBUG")
    lines = [
        debug + r"Request cmpl-1-0 details: prompt: 'it\'s: \u2028', prompt_token_ids: [1, 2, 3, 4], prompt_embeds shape: None.",  # noqa: E501
        info + "Received request cmpl-1-0: params: SamplingParams(n=1, max_tokens=5), lora_request: None.",
        debug + "Generated response cmpl-1-0 details: output_token_ids: [5, 6, 7, 8]",
        info + "Generated response cmpl-1-0: output: 'four', finish_reason: length",
        debug + "Request cmpl-2-0 details: prompt: None, prompt_token_ids: [1, 2, 3, 4, 5], prompt_embeds shape: None.",
        info + "Received request cmpl-2-0: params: SamplingParams(n=1, max_tokens=5), lora_request: None.",
        debug + "Generated response cmpl-2-0 (streaming delta) details: output_token_ids: [5, 6]",
        info + "Generated response cmpl-2-0 (streaming delta): output: 'tw', finish_reason: None",
        info + "Generated response cmpl-2-0 (streaming complete): output: 'two', finish_reason: streaming_complete",
    ]  # fmt: skip
    loaded = read(*lines)
    assert loaded.trace.input_tokens.tolist() == [4, 5]
    assert loaded.trace.output_tokens.tolist() == [4, 2]
    assert chains(loaded) == [[0, 1], [0]]
    assert quality(loaded.quality)["ignored: details of a request"] == (2, "[1, 5]")
    with pytest.raises(InputError, match=r"row 1: prompt_token_ids: not in the log \(VLLM_LOGGING_LEVEL=DEBUG makes"):
        read(lines[1])


def test_oldest_versions_log_other_words() -> None:
    old = "INFO 07-15 12:34:56 async_llm_engine.py:436] Received request x: prompt: 'p', "
    rest = "sampling_params: SamplingParams(n=1, max_tokens=16), prompt_token_ids: [1, 2], lora_request: None."
    line = old + rest
    assert read(line, output="max_tokens").trace.output_tokens.tolist() == [16]


def test_a_stream_that_tells_its_length_needs_no_deltas() -> None:
    complete = HEAD.format(1) + (
        "Generated response a (streaming complete): output: '<streaming_complete: 37 tokens>', output_token_ids: None, "
        "finish_reason: streaming_complete"
    )
    assert read(received("a", "[1]"), complete).trace.output_tokens.tolist() == [37]


def test_requests_stand_in_the_order_in_which_they_came() -> None:
    loaded = read(received("a", "[1]"), received("b", "[1, 2]"), answered("b", "[3]"), answered("a", "[3, 4]"))
    assert loaded.trace.input_tokens.tolist() == [1, 2]
    assert not any("sorted" in reason for reason in quality(loaded.quality))


def test_hashes_depend_on_the_salt_alone() -> None:
    def ids(salt: str) -> list[int]:
        parser = source("vllm_log", salt=salt, block_tokens=2, output="max_tokens").parser()  # type: ignore[attr-defined]
        list(parser.line(received("a", "[1, 2, 1, 2, 3]"), 1))
        (row,) = parser.end()
        return row.block_ids.tolist()

    one, two = ids("one"), ids("two")
    assert one == ids("one")
    assert len({*one, *two}) == 4


def test_seconds_are_spread_by_each_seed() -> None:
    lines = [received(str(i), "[1]", at=HEAD.format(10 * (i // 50))) for i in range(100)]
    trace = source("vllm_log")
    loaded = read(*lines, output="max_tokens").trace
    spread = trace.jittered(loaded, 1).arrival_s.reshape(2, 50)
    inside = spread - spread[:, :1]
    assert (np.diff(spread.ravel()) >= 0).all()
    assert (inside < 1).all()
    assert 0.3 < inside.mean() < 0.7
    assert source("vllm_log", spread_seconds=False).jittered(loaded, 1) is loaded


def test_new_year_needs_a_year() -> None:
    days = ["12-31 23:59:58", "01-01 00:00:03", "01-01 00:00:02", "02-28 00:00:00", "03-01 00:00:00"]
    lines = [received(str(i), "[1]", at=f"INFO {day} [logger.py:43] ") for i, day in enumerate(days)]
    for bad_rows in ("refuse", "drop"):
        with pytest.raises(InputError, match=r"row 2: time: given 01-01, a new year \(trace.year says"):
            read(*lines, output="max_tokens", bad_rows=bad_rows)
    day_s = 86400
    for year, february in ((2023, 2), (2022, 1)):
        arrivals = read(*lines, output="max_tokens", year=year).trace.arrival_s.tolist()
        assert arrivals == [0, 4, 5, 58 * day_s + 2, 58 * day_s + 2 + february * day_s]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([received("a", "None")], "row 1: prompt_token_ids: given None, expected a list (versions differ"),
        ([received("a", "[]", "''")], "row 1: prompt_token_ids: given none (--max-log-len 0?), expected a list"),
        ([received("a", "[1, 2")], "row 1: prompt_token_ids: not as vLLM logs it"),
        ([received("a", "[1,, 2]")], "row 1: prompt_token_ids: not as vLLM logs it"),
        ([received("a", "[" + "9" * 30 + "]")], "row 1: prompt_token_ids: given [999"),
        ([received("a", "[1]", "'open")], "row 1: params: not as vLLM logs it"),
        (
            [received("a", "[1]", sampling="n=2, max_tokens=5").replace("n=1, ", "")],
            "row 1: n: given 2, expected 1 ans",
        ),
        ([received("a", "[1]")[:110]], "row 1: params: not as vLLM logs it"),
        ([received("a", "[1]"), received("a", "[1]")], "row 2: request id: given 'a', which a row before it has"),
        ([received("a", "[1]"), answered("a", "None")], "row 2: output_token_ids: not in the log (streamed without d"),
        ([received("a", "[1]"), answered("a", "[1]", "'x")], "row 2: output: not as vLLM logs it"),
        ([received("a", "[1]", at="INFO 02-30 12:00:00 [logger.py:43] ")], "row 1: time: given '2000-02-30 12:00:00'"),
    ],
)
def test_what_cannot_be_read_is_refused_and_dropped_once(lines: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        read(*lines)
    assert message in str(refused.value)
    counts = quality(read(*lines, received("z", "[1]"), answered("z", "[1]"), bad_rows="drop").quality)
    dropped = [(reason, count) for reason, (count, _) in counts.items() if reason.startswith("dropped")]
    expected = 2 if "request id" in message else 1  # the first of two alike has no answer
    assert sum(count for _, count in dropped) == expected, dropped


def test_answers_to_nothing_are_no_requests() -> None:
    counts = quality(
        read(answered("y", "[1]"), received("z", "[1]"), answered("z", "[1]"), answered("z", "[1]")).quality
    )
    assert counts["read"] == (1, "[2]")
    assert counts["ignored: response to no request before it"] == (1, "[1]")
    assert counts["ignored: response that is not needed"] == (1, "[4]")


def test_a_cut_log_is_told_by_its_longest_text() -> None:
    cut, whole = str(list(range(20))), str(list(range(7)))
    lines = [
        received("a", whole, "'short, of seven'"),
        answered("a", "[1]"),
        received("b", cut, r"'\n234567890\'2345\x11\u1234\U0001234567'"),
    ]
    for bad_rows in ("refuse", "drop"):
        with pytest.raises(
            InputError, match=r"prompt_token_ids: given 20 tokens and as many char.* in row 3.*max-log-len"
        ):
            read(*lines, answered("b", "[1]"), bad_rows=bad_rows)
    longer = answered("b", "[1]", "'this text has more than twenty characters'")
    assert read(*lines, longer).trace.input_tokens.tolist() == [7, 20]


def test_what_users_send_is_not_taken_for_fields_or_lines() -> None:
    sampling = "stop=[', prompt_token_ids: [7, 7], lora_request: x, max_tokens=1, n=2'], max_tokens=9"
    sent = received("a", "[1, 2, 3]", sampling=sampling)
    quoted = "INFO 07-15 12:34:56 [other.py:1] seen '" + received("b", "[1, 2]") + "'"
    loaded = read(sent, quoted, output="max_tokens")
    assert loaded.trace.input_tokens.tolist() == [3]
    assert loaded.trace.output_tokens.tolist() == [9]
    counts = quality(loaded.quality)
    assert counts["read"] == (1, "[1]")
    assert counts["ignored: other log line"] == (1, "[2]")


def test_colours_and_other_requests_are_no_obstacle() -> None:
    coloured = received("a", "[1]", at="\x1b[32mINFO\x1b[0m 07-15 12:34:00 \x1b[90m[entrypoints/logger.py:92]\x1b[0m ")
    loaded = read(coloured, HEAD.format(0) + "Request a: aborted", answered("a", "[1]"))
    assert quality(loaded.quality)["ignored: other log line"] == (1, "[2]")


def test_a_request_with_details_that_cannot_be_read_is_dropped_once() -> None:
    details = HEAD.format(0) + "Request a details: prompt: 'open, prompt_token_ids: [1]"
    lines = [
        details,
        HEAD.format(0) + "Received request a: params: SamplingParams(n=1, max_tokens=5), lora_request: None.",
    ]
    with pytest.raises(InputError, match="row 2: prompt: not as vLLM logs it"):
        read(*lines)
    counts = quality(read(*lines, received("z", "[1]"), answered("z", "[1]"), bad_rows="drop").quality)
    assert counts["dropped: unreadable prompt"] == (1, "[2]")
    assert counts["read"] == (2, "[2, 3]")
