"""Batches of vLLM's KV-cache events as JSON (vllm-project/vllm, vllm/distributed/kv_events.py)."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline.trace.json_rows import json_value
from pipeline.trace.rows import RowError, block_ids, shown, time_ns

Hash = int | str

STORED, REMOVED, CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"
BATCH = "JSON batch of events, [ts, [event, ...], rank] or an object with ts and events"
_BATCH_FIELDS = ("ts", "events", "data_parallel_rank")
_STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
)


class Stored(NamedTuple):
    """Blocks behind a parent (None: from the start), and for each the bytes that its KV values depend on."""

    hashes: list[Hash]
    parent: Hash | None
    contents: list[bytes]


class Batch(NamedTuple):
    """What a rank did at a time: blocks stored, and reasons why an event tells of none."""

    time_ns: int
    rank: int
    events: list[Stored | str]


def is_batch(value: Any) -> bool:
    """Whether a JSON value has the shape of a batch."""
    if isinstance(value, dict):
        return isinstance(value.get("events"), list) and "ts" in value
    return isinstance(value, list) and 2 <= len(value) <= 3 and isinstance(value[1], list)


def batch(text: str, block_tokens: int) -> Batch:
    """Read a line."""
    value = json_value(text, BATCH)
    if not is_batch(value):
        raise RowError("line", f"given {shown(value)}, expected one {BATCH} a line")
    fields = value if isinstance(value, dict) else dict(zip(_BATCH_FIELDS, value, strict=False))
    rank = fields.get("data_parallel_rank") or 0
    if not isinstance(rank, int):
        raise RowError("data_parallel_rank", f"given {shown(rank)}, expected an integer")
    return Batch(time_ns(fields["ts"], "ts", 1.0), rank, [_event(event, block_tokens) for event in fields["events"]])


def _event(event: Any, block_tokens: int) -> Stored | str:
    if isinstance(event, dict):
        tag, fields = event.get("type"), event
    elif isinstance(event, list) and event:
        tag, fields = event[0], dict(zip(_STORED_FIELDS, event[1:], strict=False))
    else:
        tag, fields = None, {}
    if tag == REMOVED:
        return "removed blocks"
    if tag == CLEARED:
        return "cleared cache"
    if tag != STORED:
        raise RowError("events", f"given {shown(event)}, expected {STORED}, {REMOVED} or {CLEARED}")
    if fields.get("group_idx"):
        return "blocks of another cache group"
    if str(fields.get("medium") or "GPU").upper() != "GPU":
        return "blocks stored on another medium"
    return _stored(fields, block_tokens) if fields.get("block_hashes") != [] else "no blocks stored"


def _stored(fields: dict[str, Any], block_tokens: int) -> Stored:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list):
        raise RowError("block_hashes", f"given {shown(hashes)}, expected a list")
    if fields.get("block_size") != block_tokens:
        given = shown(fields.get("block_size"))
        raise RowError("block_size", f"given {given}, expected {block_tokens} (trace.block_tokens)")
    parent = fields.get("parent_block_hash")
    return Stored(
        [_hash(value, "block_hashes") for value in hashes],
        None if parent is None else _hash(parent, "parent_block_hash"),
        _contents(fields, hashes, block_tokens),
    )


def _contents(fields: dict[str, Any], hashes: list[Any], block_tokens: int) -> list[bytes]:
    """Per block its tokens, adapter and what else tells it apart; its hash, which is of all that, without tokens."""
    if not fields.get("token_ids"):
        return [repr(value).encode("utf-8", "surrogatepass") for value in hashes]
    ids = block_ids(fields["token_ids"], "token_ids")
    if len(ids) != len(hashes) * block_tokens:
        raise RowError("token_ids", f"given {len(ids)}, expected {block_tokens} for each of {len(hashes)} blocks")
    keys = fields.get("extra_keys") or [None] * len(hashes)
    if not isinstance(keys, list) or len(keys) != len(hashes):
        raise RowError("extra_keys", f"given {shown(keys)}, expected a list of {len(hashes)}")
    adapter = fields.get("lora_name") or fields.get("lora_id")
    return [
        ids[at * block_tokens : (at + 1) * block_tokens].tobytes()
        + repr((adapter, key)).encode("utf-8", "surrogatepass")
        for at, key in enumerate(keys)
    ]


def _hash(value: Any, field: str) -> Hash:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise RowError(field, f"given {shown(value)}, expected an integer or text")
    return value
