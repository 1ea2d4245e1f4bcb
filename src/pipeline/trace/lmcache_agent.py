"""Reader of agents' sessions with their messages (LMCache's, sammshen/lmcache-agentic-traces)."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Hashable, Sequence
from typing import Any

from pydantic import Field
from typing_extensions import override

from pipeline.trace.hashes import BlockHasher, id_of
from pipeline.trace.json_rows import ObjectLines, keys_of, label, member
from pipeline.trace.rows import MOST_NS, LineParser, Row, RowError, nested, shown, time_ns, tokens
from pipeline.trace.session_file import SessionFile

HASHER = BlockHasher("kvplan prefixes")
CLOCKS = ("session_timestamp", "timestamp")


class LmcacheAgentTrace(SessionFile):
    """One request a line: session_id, model, input (all messages so far), output_length (tokens), and its time.

    Tokens are not in the file: a prompt has a token for every chars_per_token characters, at least 1, rounded down.
    Counted are, for each message, its role, content and tool_calls (as JSON), each with a line end; parts of a content
    that are no text, as JSON. Where output_length is missing, text `output` is estimated alike, rounded up. A request
    without output failed.
    Blocks: the characters are cut into blocks of block_tokens tokens; the id of one is a salted hash of it and all
    before it. Equal prefixes have equal ids, in all sessions; no content is kept. Blocks of outputs are not known.
    Times: session_timestamp or timestamp (s, from any origin in a session), whose rows may stand in any order; without
    them pre_gap alone, each added to those before in its session in the order of the file, which leaves the service
    out. pre_gap (s), from the end of the answer before, is the think time; where it is missing, the time between the
    two arrivals stands in (see SessionFile). Sessions may be spread over the file. The class is the model.
    """

    chars_per_token: float = Field(ge=0.25, le=64)

    def lists_blocks(self) -> bool:
        """Whether the file carries prefixes: yes."""
        return True

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the first line is an object with a session's messages."""
        found = keys_of(lines)
        return {"session_id", "input"} <= found and not found.isdisjoint(("output_length", "output"))

    @override
    def parser(self) -> LineParser:
        """Return a parser that adds up the gaps of each session."""
        clock_ns: dict[Hashable, int] = {}
        return ObjectLines(lambda record: self._row(record, clock_ns))

    def _row(self, record: dict[str, Any], clock_ns: dict[Hashable, int]) -> Row:
        session = _session(member(record, "session_id"))
        text = _text(member(record, "input"))
        prompt_tokens = tokens(max(int(len(text) / self.chars_per_token), 1), "input", 1)
        arrival_ns, think_s = _times(record, clock_ns.get(session, 0))
        row = Row(
            arrival_ns,
            prompt_tokens,
            self._output_tokens(record),
            session,
            label(record, "model"),
            self._blocks(text, prompt_tokens // self.block_tokens),
            think_s,
        )
        clock_ns[session] = arrival_ns
        return row

    def _output_tokens(self, record: dict[str, Any]) -> int:
        text = record.get("output")
        if record.get("output_length") is None and isinstance(text, str):
            return tokens(math.ceil(len(text) / self.chars_per_token), "output", 0)
        return tokens(member(record, "output_length"), "output_length", 0)

    def _blocks(self, text: str, count: int) -> array[int]:
        width = self.block_tokens * self.chars_per_token
        ids, prefix = array("Q"), b""
        for block in range(count):
            part = text[int(block * width) : int((block + 1) * width)].encode("utf-8", "surrogatepass")
            prefix = HASHER.digest(prefix, part)
            ids.append(id_of(prefix))
        return ids


def _session(value: object) -> Hashable:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise RowError("session_id", f"given {shown(value)}, expected a text or a number")
    return value


def _times(record: dict[str, Any], before_ns: int) -> tuple[int, float]:
    """Arrival in ns and think time in s; before_ns: arrival of the row before in its session."""
    gap_ns = None if record.get("pre_gap") is None else time_ns(record["pre_gap"], "pre_gap", 1.0)
    think_s = math.nan if gap_ns is None else gap_ns / 1e9
    clock = next((field for field in CLOCKS if record.get(field) is not None), None)
    if clock is not None:
        return time_ns(record[clock], clock, 1.0), think_s
    if gap_ns is None:
        raise RowError("time", f"missing, expected one of {', '.join(CLOCKS)}, pre_gap")
    if before_ns + gap_ns > MOST_NS:
        raise RowError("pre_gap", f"given {shown(record['pre_gap'])}, expected under 292 years in a session")
    return before_ns + gap_ns, think_s


def _text(messages: object) -> str:
    """Characters of a prompt."""
    if not isinstance(messages, list) or not messages:
        raise RowError("input", f"given {shown(messages)}, expected a list of messages")
    lines = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise nested(f"input[{index}]", f"given {shown(message)}, expected a message with a role")
        lines += [message["role"], _content(message.get("content"), f"input[{index}].content")]
        if message.get("tool_calls"):
            lines.append(_json(message["tool_calls"]))
    return "".join(f"{line}\n" for line in lines)


def _content(content: object, name: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise nested(name, f"given {shown(content)}, expected a text or a list of parts")
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "\n".join(text if isinstance(text, str) else _json(part) for text, part in zip(texts, content, strict=True))


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise RowError("input", "nested too deeply, expected messages") from None
