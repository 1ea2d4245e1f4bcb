"""Reader of captured KV-cache events of a vLLM server (vllm-project/vllm)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from pipeline.spec import Count, Positive
from pipeline.trace.file_source import FileSource
from pipeline.trace.hashes import BlockHasher, id_of
from pipeline.trace.json_rows import json_value
from pipeline.trace.ledger import CHANGED, Ledger
from pipeline.trace.lines import ReadLines
from pipeline.trace.request_trace import RequestTrace
from pipeline.trace.rows import Left, LineParser, Row, RowError
from pipeline.trace.vllm_kv_batches import BATCH, Hash, Stored, batch, is_batch


class KvEventTrace(FileSource):
    """JSON lines, one batch of events of `--kv-events-config` a line, as its subscriber gets it (vllm-project/vllm).

    [ts, [event, ...], rank] or {"ts": s, "events": [...], "data_parallel_rank": n}; ["BlockStored", hashes, parent,
    token_ids, block_size, lora_id, medium, lora_name, extra_keys, group_idx] or {"type": "BlockStored", "block_hashes":
    ..., "parent_block_hash": ..., ...}; BlockRemoved and AllBlocksCleared alike, which are not used. Hashes are
    integers or text (bytes in hex or base64). Each batch once, those of a rank in their order. Blocks on another medium
    than the GPU, and of cache groups but the first, are ignored and counted.
    Events have no requests: these are inferred, per rank. Blocks stored behind the last block of a request at most
    chain_gap_s ago go on with it: several at once while none of its output was seen are prompt (a chunk of prefill), a
    single one is output. Everything else starts a request, whose prompt is all blocks before and these.
    What this cannot tell: a prompt found whole in the cache, with an answer that fills no block, stores nothing and is
    not there; with a longer answer, its first block counts as prompt. A last chunk of one block counts as output,
    further chunks behind it as a request. A next turn that adds one block within chain_gap_s is taken for output of the
    one before. A preempted request counts twice. Lengths are multiples of block_tokens: up to a block of each prompt
    and answer is missing. short_output_tokens stands in for an answer that filled no block, and is counted as changed.
    The arrival is when the first block was stored, after any queueing. A request on a parent from before the capture
    has an unknown length: dropped and counted. There are no sessions: every request is one of its own.
    Blocks: hashes, keyed with `salt`, of the tokens (where there are none: of the block's hash) and all before them, so
    that no token leaves the reader and ranks agree.
    """

    chain_gap_s: Positive
    short_output_tokens: Count
    salt: str

    @classmethod
    @override
    def looks_like(cls, lines: Sequence[str]) -> bool:
        """Whether the first line is a batch of events."""
        try:
            return bool(lines) and is_batch(json_value(lines[0], BATCH))
        except RowError:
            return False

    @override
    def lists_blocks(self) -> bool:
        """Whether the file carries prefix hashes."""
        return True

    @override
    def parser(self) -> LineParser:
        """Return the parser of a capture."""
        return _Requests(self.block_tokens, self.chain_gap_s, self.short_output_tokens, BlockHasher(self.salt))

    @override
    def requests(self, seed: int, ledger: Ledger, read: ReadLines) -> RequestTrace:
        """Read the file; what stands in for something else is counted."""
        trace = super().requests(seed, ledger, read)
        listed = trace.block_offset[1:] - trace.block_offset[:-1]
        short = listed * self.block_tokens == trace.input_tokens
        ledger.add_all(CHANGED + "answer filled no block, short_output_tokens stands in", trace.request_id[short])
        return trace


@dataclass(frozen=True, eq=False, slots=True)
class _Block:
    """A block by its id; is_whole: whether all blocks before it are known; depth: blocks up to this one."""

    digest: bytes
    before: _Block | None
    depth: int
    is_whole: bool

    def chain(self) -> array[int]:
        ids, block = array("Q"), self
        while True:
            ids.append(id_of(block.digest))
            if block.before is None:
                return ids[::-1]
            block = block.before


@dataclass(eq=False, slots=True)
class _Request:
    number: int
    arrival_ns: int
    last_ns: int
    tail: _Block
    output_blocks: int = 0


@dataclass(eq=False, slots=True)
class _Rank:
    """Blocks of a rank by their hash, and its requests by that of their last block."""

    blocks: dict[Hash, _Block] = field(default_factory=dict)
    open: dict[Hash, list[_Request]] = field(default_factory=dict)


class _Requests(LineParser):
    def __init__(self, block_tokens: int, gap_s: float, short_tokens: int, hasher: BlockHasher) -> None:
        self._block_tokens, self._gap_ns, self._short_tokens = block_tokens, round(gap_s * 1e9), short_tokens
        self._hasher = hasher
        self._ranks: dict[int, _Rank] = {}
        self._requests: list[_Request] = []

    @override
    def line(self, text: str, number: int) -> Iterable[Row | Left]:
        told = batch(text, self._block_tokens)
        rank = self._ranks.setdefault(told.rank, _Rank())
        reasons = [
            event if isinstance(event, str) else self._store(rank, event, told.time_ns, number) for event in told.events
        ]
        return [Left(reason, False) for reason in reasons if reason]

    @override
    def end(self) -> Iterable[Row | Left]:
        for request in self._requests:
            if not request.tail.is_whole:
                yield Left("request on blocks from before the capture", True, request.number)
                continue
            inputs = (request.tail.depth - request.output_blocks) * self._block_tokens
            outputs = request.output_blocks * self._block_tokens or self._short_tokens
            chain = request.tail.chain()
            yield Row(request.arrival_ns, inputs, outputs, block_ids=chain, number=request.number)

    def _store(self, rank: _Rank, stored: Stored, time_ns: int, number: int) -> str:
        """Let blocks go on with a request, or start one; why the event starts none."""
        tail = self._add(rank, stored)
        request = self._continued(rank, stored, time_ns)
        is_new = request is None
        if request is None:
            request = _Request(number, time_ns, time_ns, tail)
            self._requests.append(request)
        elif len(stored.hashes) == 1:
            request.output_blocks += 1
        request.tail, request.last_ns = tail, time_ns
        rank.open.setdefault(stored.hashes[-1], []).append(request)
        return "" if is_new else "more blocks of a request"

    def _add(self, rank: _Rank, stored: Stored) -> _Block:
        """Note the blocks of an event and return the last."""
        before = None if stored.parent is None else rank.blocks.get(stored.parent)
        is_whole = stored.parent is None or (before is not None and before.is_whole)
        for value, content in zip(stored.hashes, stored.contents, strict=True):
            digest = self._hasher.digest(before.digest if before else b"", content)
            before = _Block(digest, before, before.depth + 1 if before else 1, is_whole)
            rank.blocks[value] = before
        assert before is not None, "an event without blocks is none"
        return before

    def _continued(self, rank: _Rank, stored: Stored, time_ns: int) -> _Request | None:
        """Take the request that blocks go on with out of those open behind their parent."""
        if stored.parent is None or stored.parent not in rank.open:
            return None
        recent = [request for request in rank.open.pop(stored.parent) if time_ns - request.last_ns <= self._gap_ns]
        fitting = [request for request in recent if len(stored.hashes) == 1 or not request.output_blocks]
        if left := [request for request in recent if request not in fitting[:1]]:
            rank.open[stored.parent] = left
        return fitting[0] if fitting else None
