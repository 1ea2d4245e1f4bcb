"""Reader of Bailian's traces of Qwen services (alibaba-edu/qwen-bailian-usagetraces-anon)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from pipeline.trace.file_source import FileSource
from pipeline.trace.json_rows import json_object, keys_of, label, member
from pipeline.trace.rows import Left, LineParser, Row, RowError, block_ids, full_blocks, shown, time_ns, tokens

PARENT, NO_PARENT = "parent_chat_id", -1


class BailianTrace(FileSource):
    """One JSON object a line: chat_id, parent_chat_id, timestamp (s), input_length, output_length, type, hash_ids.

    Blocks: the release lists ceil(input / 16) ids; the last one is dropped where its block is partial, as only full
    blocks can be shared; floor(input / 16) ids are taken as they are. Ids number salted hashes of blocks, and it is
    not said that these cover the prefix: one met under another prefix is another block, and counted.
    Sessions: a chat and all that lead back to it by parent_chat_id, which is -1 (or missing) in a first turn. A parent
    that no row before has (it came before the trace began) stands for the session all the same, so that its children
    stay together; each is counted. Requests come at their recorded times (open loop). `turn` is not read.
    Class: type (text, search, image, file). chat_id names the request: no two rows may have the same.
    """

    def lists_blocks(self) -> bool:
        """Whether the file carries prefix hashes: yes."""
        return True

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the first line is an object with a chat and its parent."""
        return {"chat_id", "parent_chat_id", "timestamp"} <= keys_of(lines)

    @override
    def parser(self) -> LineParser:
        """Return a parser that remembers which session a chat belongs to."""
        return _Chats(self.block_tokens)


class _Chats(LineParser):
    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._session: dict[int, int] = {}

    @override
    def line(self, text: str, number: int) -> Iterable[Row | Left]:
        """The request of a line; that its parent is unknown, too."""
        record = json_object(text)
        chat = _chat(member(record, "chat_id"), "chat_id", 0)
        parent = _chat(NO_PARENT if record.get(PARENT) is None else record[PARENT], PARENT, NO_PARENT)
        is_known = parent == NO_PARENT or parent in self._session
        session = chat if parent == NO_PARENT else self._session.get(parent, parent)
        row = self._row(record, chat, session)
        self._session.setdefault(chat, session)
        if is_known:
            return (row,)
        return row, Left("parent_chat_id of no row before, taken as a session", is_request=False, is_kept=True)

    def _row(self, record: dict[str, Any], chat: int, session: int) -> Row:
        inputs = tokens(member(record, "input_length"), "input_length", 1)
        ids = block_ids(member(record, "hash_ids"), "hash_ids")
        return Row(
            time_ns(member(record, "timestamp"), "timestamp", 1.0),
            inputs,
            tokens(member(record, "output_length"), "output_length", 0),
            session,
            label(record, "type"),
            full_blocks(ids, "hash_ids", inputs, self._block_tokens),
            request_id=chat,
        )


def _chat(value: object, field: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RowError(field, f"given {shown(value)}, expected a whole number, at least {least}")
    return value
