"""Lines of a vLLM server's log that tell of a request (vllm-project/vllm, vllm/entrypoints/logger.py)."""

from __future__ import annotations

import json
import re
from array import array
from typing import NamedTuple

from pipeline.trace.rows import RowError, block_ids, tokens

RECEIVED, DETAILS, RESPONSE = "Received request", "Request", "Generated response"
DELTA = "streaming delta"
EXPECTED = "not as vLLM logs it (cut off? of another version?)"

_HEAD = r"[^'\"]{0,300}?\b(?:DEBUG|INFO|WARNING|ERROR) (\d\d-\d\d) (\d\d:\d\d:\d\d) \[?[\w./-]{1,200}:\d{1,9}\] "
_LOG = re.compile(_HEAD, re.ASCII)
_LINE = re.compile(
    _HEAD + r"(Received request|Request|Generated response) (\S{1,1000}?)(?: \((streaming \w+)\))?( details)?: (.*)",
    re.ASCII | re.DOTALL,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_TEXT = r"(None|'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")"
_LITERAL = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x..|u....|U........|.)", re.DOTALL)
_PROMPT = re.compile(rf"prompt: {_TEXT}, ", re.DOTALL)
_OUTPUT = re.compile(rf"output: {_TEXT}, ", re.DOTALL)
_IDS = re.compile(r"(?:prompt|output)_token_ids: (None|\[[\d, ]*\])", re.ASCII)
_STREAMED = re.compile(r"'<streaming_complete: (\d{1,10}) tokens>'", re.ASCII)


class LogLine(NamedTuple):
    """A line about a request: month-day, time, what it tells, of which request, how it was streamed, and the rest."""

    day: str
    clock: str
    kind: str
    request: str
    streaming: str
    has_details: bool
    body: str


class Prompt(NamedTuple):
    """Prompt of a request: its tokens (None: not logged) and the characters of its text (0: not logged)."""

    ids: array[int] | None
    characters: int


class Received(NamedTuple):
    """A request: its prompt if the line has it, whether it generates, how many answers of how many tokens at most."""

    prompt: Prompt | None
    generates: bool
    answers: int
    max_tokens: int | None
    adapter: str


class Response(NamedTuple):
    """An answer or a part: its tokens (None: not logged), characters of its text, count of tokens told in its place."""

    ids: array[int] | None
    characters: int
    told_tokens: int | None


def is_log(text: str) -> bool:
    """Whether a line begins as vLLM's log lines do."""
    return _LOG.match(_COLOUR.sub("", text)) is not None


def log_line(text: str) -> LogLine | None:
    """Take a line about a request apart; None for any other."""
    match = _LINE.match(_COLOUR.sub("", text))
    if match is None or (match[3] == DETAILS) > bool(match[6]):
        return None
    return LogLine(match[1], match[2], match[3], match[4], match[5] or "", bool(match[6]), match[7])


def prompt_of(body: str) -> Prompt:
    """Read what the details of a request say of its prompt."""
    text = _PROMPT.match(body)
    if text is None:
        raise RowError("prompt", EXPECTED)
    return Prompt(_ids(body[text.end() :], "prompt_token_ids"), _characters(text[1]))


def received(body: str) -> Received:
    """Read a request, of which newer versions tell the prompt in a line of its own."""
    text = _PROMPT.match(body)
    rest = body[text.end() :] if text else body
    label, _, params = rest.partition(": ")
    # What a user gave may hold anything, so fields behind it are looked for from the end, and outside of quotes.
    params, has_adapter, adapter = params.rpartition(", lora_request: ")
    if label not in ("params", "sampling_params") or not has_adapter:
        raise RowError("params", EXPECTED)
    prompt = None
    if text:
        params, _, ids = params.rpartition(", prompt_token_ids: ")
        prompt = Prompt(_ids("prompt_token_ids: " + ids, "prompt_token_ids"), _characters(text[1]))
    plain = _LITERAL.sub("''", params)
    most = re.search(r"\bmax_tokens=(\d{1,20})\b", plain, re.ASCII)
    answers = re.search(r"\bn=(\d{1,9})\b", plain, re.ASCII)
    return Received(
        prompt,
        plain.startswith("SamplingParams("),
        int(answers[1]) if answers else 1,
        tokens(int(most[1]), "max_tokens", 0) if most else None,
        adapter.partition(", prompt_adapter_request: ")[0].removesuffix("."),
    )


def response(line: LogLine) -> Response:
    """Read an answer, or of newer versions the details of one, or its text."""
    text = _OUTPUT.match(line.body)
    rest = line.body[text.end() :] if text else line.body
    if not text and not line.has_details:
        raise RowError("output", EXPECTED)
    ids = _ids(rest, "output_token_ids") if rest.startswith("output_token_ids: ") else None
    told = _STREAMED.fullmatch(text[1]) if text else None
    return Response(ids, _characters(text[1]) if text else 0, tokens(int(told[1]), "output", 0) if told else None)


def _ids(text: str, field: str) -> array[int] | None:
    match = _IDS.match(text)
    if match is None:
        raise RowError(field, EXPECTED)
    if match[1] == "None":
        return None
    try:
        ids = json.loads(match[1])
    except ValueError:
        raise RowError(field, EXPECTED) from None
    return block_ids(ids, field)


def _characters(literal: str) -> int:
    return 0 if literal == "None" else len(_ESCAPE.sub("_", literal)) - 2
