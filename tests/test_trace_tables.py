"""Readers of tables: BurstGPT, splitwise-sim, any CSV and any parquet by their columns."""

from __future__ import annotations

import numpy as np
import pytest
from trace_sources import PLENTY, SAMPLES, check_trace, load_lines, quality, source

from pipeline.spec import InputError

BURST = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_3 = b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_burstgpt_sample() -> None:
    loaded = source("burstgpt", path=str(SAMPLES / "burstgpt_small.csv")).load(0, PLENTY)
    check_trace(loaded)
    trace = loaded.trace
    assert trace.arrival_s.tolist() == [0, 2, 2, 3.5, 80, 90]
    assert trace.input_tokens.tolist() == [906, 36, 250, 250, 18, 1400]
    assert trace.output_tokens.tolist() == [446, 29, 12, 1, 300, 80]
    # aaaa-1 comes back at the end; calls of the API have no session and are one each.
    assert trace.session_id.tolist() == [0, 1, 2, 3, 4, 0]
    assert trace.classes == ("Conversation log", "API log")
    assert trace.class_id.tolist() == [0, 0, 1, 1, 1, 0]
    assert np.isnan(trace.think_s).all()
    assert not trace.has_prefixes
    assert quality(loaded.quality) == {
        "read": (8, "[2, 3, 4, 5, 6]"),
        "kept": (6, "[2, 3, 4, 5, 9]"),
        "changed: earlier than a row before it, sorted by time": (1, "[10]"),
        "dropped: no output (failed request)": (2, "[6, 8]"),
        "ignored: blank line": (1, "[7]"),
        "noted: one output token, so no time per output token": (1, "[5]"),
    }


def test_burstgpt_of_the_first_files_has_no_sessions() -> None:
    loaded = load_lines(
        "burstgpt", BURST + b"5,ChatGPT,10,2,12,API log\n6,GPT-4,11,3,14,API log\n", class_column="Model"
    )
    assert loaded.trace.session_id.tolist() == [0, 1]
    assert loaded.trace.classes == ("ChatGPT", "GPT-4")
    unlabelled = load_lines("burstgpt", BURST + b"5,,10,2,12,\n", class_column=None).trace
    assert unlabelled.classes == ("burstgpt",)


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        (
            BURST,
            b"5,GPT-4,10,2,13,API log\n",
            "row 2: Total tokens: given 13, expected the sum of 10 request and 2 resp",
        ),
        (BURST, b"5,GPT-4,0,2,2,API log\n", "row 2: Request tokens: given 0.0, expected 1 to"),
        (BURST, b"5,GPT-4,10,,10,API log\n", "row 2: Response tokens: missing"),
        (BURST, b"-5,GPT-4,10,2,12,API log\n", "row 2: Timestamp: given -5.0, expected a time from 0"),
        (BURST, b"5,GPT-4,10,2,12, \n", "row 2: Log Type: missing"),
        (BURST_3, b"5,GPT-4,10,2,12,API log\n", "row 2: line: given 6 values, expected 8"),
        (BURST_3.replace(b"Elapsed time", b"Session ID"), b"", "header: column 'Session ID' is there twice"),
        (BURST.replace(b"Total tokens", b"Sum"), b"", "header: column 'Total tokens' is missing"),
    ],
)
def test_a_bad_burstgpt_row_is_refused(header: bytes, line: bytes, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_lines("burstgpt", header + line)
    assert message in str(refused.value)


def test_splitwise_sample() -> None:
    loaded = source("splitwise", path=str(SAMPLES / "splitwise_small.csv"), class_column="application_id").load(
        0, PLENTY
    )
    check_trace(loaded)
    trace = loaded.trace
    np.testing.assert_allclose(trace.arrival_s, [0, 0.01, 0.055, 1.2238583, 1.4738583], atol=1e-12)
    assert trace.input_tokens.tolist() == [374, 396, 879, 23, 1313]
    assert trace.output_tokens.tolist() == [44, 109, 1, 8, 28]
    assert trace.session_id.tolist() == [0, 1, 2, 4, 3]
    assert trace.classes == ("application 0", "application 1")
    assert trace.class_id.tolist() == [0, 0, 1, 0, 1]
    assert quality(loaded.quality)["dropped: no output (failed request)"] == (1, "[5]")
    assert source("splitwise", path=str(SAMPLES / "splitwise_small.csv")).load(0, PLENTY).trace.classes == (
        "splitwise",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1,2,0,1,1,5,6\n", "row 3: request id: given '1', which a row before it has"),
        (b" ,2,0,1,1,5,6\n", "row 3: request_id: missing"),
        (b"2,1,0,1,1,5,6\n", "row 3: request_type: given '1', expected 2 (generation by an LLM)"),
        (b"2,2,0,1,8,5,6\n", "row 3: batch_size: given '8', expected 1 (one prompt a request)"),
        (b"2,2,0,-1,1,5,6\n", "row 3: arrival_timestamp: given -1.0, expected a time from 0"),
        (b"2,2,0,1,1,0,6\n", "row 3: prompt_size: given 0.0, expected 1 to"),
        (b"2,2,0,1,1,5,6.5\n", "row 3: token_size: given 6.5, expected a whole number of tokens"),
    ],
)
def test_a_bad_splitwise_row_is_refused_or_dropped(line: bytes, message: str) -> None:
    header = (
        b"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n1,2,0,1,1,5,6\n"
    )
    with pytest.raises(InputError) as refused:
        load_lines("splitwise", header + line)
    assert message in str(refused.value)
    loaded = load_lines("splitwise", header + line, bad_rows="drop")
    assert loaded.trace.request_count == 1
    assert sum(count for reason, (count, _) in quality(loaded.quality).items() if reason.startswith("dropped")) == 1
