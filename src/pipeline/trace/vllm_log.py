"""Reader of the request log of a vLLM server (vllm-project/vllm)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field
from typing_extensions import override

from pipeline.trace.file_source import FileSource
from pipeline.trace.hashes import BlockHasher
from pipeline.trace.ledger import CHANGED, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.mooncake import spread_buckets
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.rows import NO_BLOCKS, Left, LineParser, Row, RowError, date_ns, shown
from pipeline.trace.vllm_lines import (
    DELTA,
    DETAILS,
    RECEIVED,
    LogLine,
    Prompt,
    is_log,
    log_line,
    prompt_of,
    received,
    response,
)

LEAP_YEAR = 2000
NEW_YEAR_NS = 180 * 86400 * 10**9
"""A step back by more than this is a new year."""
SHORTEST_CUT = 16
Output = Literal["logged", "max_tokens"]


class VllmLogTrace(FileSource):
    """Log of a server run with --enable-log-requests and, for answers, --enable-log-outputs (vllm-project/vllm).

    Prompts are lists of token ids: versions of 2025 and before log them with the request, newer ones in a line of their
    own, at VLLM_LOGGING_LEVEL=DEBUG. Where a list is None, or cut by --max-log-len, lengths are unknown and the file is
    refused. A cut leaves no mark: it is told by a text of N characters with N tokens where no text of the log is
    longer, for N from 16 on, and not for prompts that were sent as token ids.
    output: `logged`: the tokens of the answer; a request without an answer in the log is dropped and counted (as far
    as is known, completions log none). Of a streamed answer the deltas are added up, which leaves out tokens that
    came without text. `max_tokens`: what was asked for at most stands in for every answer, and is counted as changed.
    Blocks: hashes of block_tokens tokens and all before them, keyed with `salt`; no text and no token leaves the
    reader. Those of an answer are known unless it was streamed. Images, cache_salt and embeddings are not in the ids:
    prompts that differ in nothing else look alike. Adapters (lora_request) are told apart.
    Times are local, whole seconds, without a year. year: of the first request; null: any, and a log that crosses new
    year is refused. spread_seconds: each seed spreads arrivals uniformly over their second, in their order.
    Requests for n answers are refused, those that generate nothing (embeddings) are dropped and counted. There are no
    sessions: every request is one of its own. Logs of another format (VLLM_LOGGING_CONFIG_PATH) are not read.
    """

    output: Output
    salt: str
    year: int | None = Field(ge=1970, le=2261, strict=True)
    spread_seconds: bool

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether a line begins as vLLM's do."""
        return any(map(is_log, lines))

    @override
    def lists_blocks(self) -> bool:
        """Whether the file carries prefix hashes: they are made of its tokens."""
        return True

    @override
    def parser(self) -> LineParser:
        """Return the parser of a log."""
        return _LogParser(self.output, self.year, self.block_tokens, BlockHasher(self.salt))

    @override
    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Read the file; what stands in for something else is counted."""
        trace = super().requests(seed, ledger, read)
        if self.output == "max_tokens":
            ledger.add_all(CHANGED + "length of the answer not known, max_tokens stands in", trace.request_id)
        if self.spread_seconds:
            ledger.add_all(CHANGED + "arrival spread inside its second", trace.request_id)
        return trace

    @override
    def jittered(self, trace: RequestTrace, seed: int) -> RequestTrace:
        """Spread arrivals over their second, if that is asked for."""
        return spread_buckets(trace, seed, 1.0) if self.spread_seconds else trace


@dataclass
class _Request:
    number: int
    arrival_ns: int
    tokens: array[int]
    adapter: str
    max_tokens: int | None
    output: array[int] = field(default_factory=lambda: array("Q"))
    is_output_known: bool = False
    is_streamed: bool = False
    row: Row | None = None


class _LogParser(LineParser):
    def __init__(self, output: Output, year: int | None, block_tokens: int, hasher: BlockHasher) -> None:
        self._output, self._year, self._block_tokens, self._hasher = output, year, block_tokens, hasher
        self._requests: dict[str, _Request] = {}
        self._details: dict[str, Prompt | RowError] = {}
        self._latest_ns = 0
        self._years = 0
        self._cut = _Cut()

    @override
    def line(self, text: str, number: int) -> Iterable[Row | Left]:
        line = log_line(text)
        if line is None:
            return (Left("other log line", False),)
        if line.kind == RECEIVED:
            return self._receive(line, number)
        if line.kind == DETAILS:
            return self._note(line, number)
        return self._respond(line, number)

    @override
    def end(self) -> Iterable[Row | Left]:
        self._cut.check()
        for request in self._requests.values():
            yield request.row or Left("no response logged (trace.output=max_tokens does without)", True, request.number)

    def _note(self, line: LogLine, number: int) -> Iterable[Left]:
        """Keep the prompt for the line with its request; what cannot be read is that request's fault."""
        try:
            prompt = self._details[line.request] = prompt_of(line.body)
            self._cut.look(prompt.characters, prompt.ids, number)
        except RowError as exc:
            self._details[line.request] = exc
        return (Left("details of a request", False),)

    def _receive(self, line: LogLine, number: int) -> Iterable[Left]:
        arrival_ns = self._time_ns(line)
        given = received(line.body)
        prompt = given.prompt or self._details.pop(line.request, None)
        if given.prompt:
            self._cut.look(given.prompt.characters, given.prompt.ids, number)
        if not given.generates:
            return (Left("request that generates nothing", True),)
        if line.request in self._requests:
            raise RowError("request id", f"given {shown(line.request)}, which a row before it has")
        if given.answers != 1:
            raise RowError("n", f"given {given.answers}, expected 1 answer to a request")
        if isinstance(prompt, RowError):
            raise prompt
        if prompt is None:
            raise RowError("prompt_token_ids", "not in the log (VLLM_LOGGING_LEVEL=DEBUG makes the server log them)")
        if not prompt.ids:
            given_ids = "None" if prompt.ids is None else "none (--max-log-len 0?)"
            raise RowError(
                "prompt_token_ids", f"given {given_ids}, expected a list (versions differ in when they log it)"
            )
        request = _Request(number, arrival_ns, prompt.ids, given.adapter, given.max_tokens)
        if self._output == "max_tokens":
            if given.max_tokens is None:
                raise RowError("max_tokens", "given None, expected a number (trace.output=logged does without)")
            self._tell(request, given.max_tokens)
        self._requests[line.request] = request
        return ()

    def _respond(self, line: LogLine, number: int) -> Iterable[Left]:
        request = self._requests.get(line.request)
        if request is None:
            return (Left("response to no request before it", False),)
        if request.row is not None:
            return (Left("response that is not needed", False),)
        try:
            return self._take(request, line, number)
        except RowError:
            del self._requests[line.request]
            raise

    def _take(self, request: _Request, line: LogLine, number: int) -> Iterable[Left]:
        given = response(line)
        self._cut.look(given.characters, given.ids, number)
        is_part = line.streaming == DELTA or line.has_details
        if given.ids is not None:
            request.output.extend(given.ids)
            request.is_output_known = True
        request.is_streamed |= line.streaming == DELTA
        if is_part:
            return (Left("part of a response", False),)
        if given.told_tokens is None and not request.is_output_known:
            raise RowError(
                "output_token_ids", "not in the log (streamed without deltas? trace.output=max_tokens goes on)"
            )
        told = given.told_tokens
        request.is_streamed |= told is not None
        self._tell(request, len(request.output) if told is None else told)
        return (Left("end of a response", False),)

    def _tell(self, request: _Request, output_tokens: int) -> None:
        """Make the row of a request, and forget its tokens."""
        inputs = request.tokens
        known = inputs if request.is_streamed else inputs + request.output
        blocks = self._hasher.chain(known, self._block_tokens, request.adapter)
        request.row = Row(
            request.arrival_ns, len(inputs), output_tokens, block_ids=blocks or NO_BLOCKS, number=request.number
        )
        request.tokens, request.output = NO_BLOCKS, NO_BLOCKS

    def _time_ns(self, line: LogLine) -> int:
        """Time of a line; its year is that of the latest before it, or the next one if it would lie far behind."""
        first = LEAP_YEAR if self._year is None else self._year
        arrival_ns = date_ns(f"{first + self._years}-{line.day} {line.clock}", "time")
        if arrival_ns < self._latest_ns - NEW_YEAR_NS:
            if self._year is None:
                raise RowError("time", f"given {line.day}, a new year (trace.year says which the first is)", fatal=True)
            self._years += 1
            arrival_ns = date_ns(f"{first + self._years}-{line.day} {line.clock}", "time")
        self._latest_ns = max(self._latest_ns, arrival_ns)
        return arrival_ns


class _Cut:
    """Whether --max-log-len cut texts and lists of tokens to the same length."""

    def __init__(self) -> None:
        self._longest = 0
        self._equal: dict[int, int] = {}

    def look(self, characters: int, ids: Sequence[int] | None, number: int) -> None:
        self._longest = max(self._longest, characters)
        if ids is not None and len(ids) == characters:
            self._equal.setdefault(characters, number)

    def check(self) -> None:
        first = self._equal.get(self._longest)
        if first is not None and self._longest >= SHORTEST_CUT:
            raise RowError(
                "prompt_token_ids",
                f"given {self._longest} tokens and as many characters in row {first}, and nowhere more: cut by "
                f"--max-log-len, expected the log of a server without it",
                fatal=True,
            )
