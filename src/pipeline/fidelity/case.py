"""A replayed run on disk: the profile of its machine, its requests, and what a real engine and a peer did with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.fidelity.checked import CheckedTable, Floats, Ints, read_table
from pipeline.fidelity.meta import Meta, read_meta
from pipeline.fidelity.profile import read_experts, read_kernels
from pipeline.predictor.kernel_tables import KernelTables
from pipeline.spec import InputError

NS = 1e-9


@dataclass(frozen=True)
class Times:
    """When the engine took each request (n,), and put out its first and its last token, in seconds."""

    taken_s: Floats
    first_token_s: Floats
    last_token_s: Floats


@dataclass(frozen=True)
class RunRequests:
    """Requests (n,) in order of arrival; the first prefix_blocks full blocks of a prompt equal those of request
    prefix_parent (-1 without one).
    """

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    prefix_parent: Ints
    prefix_blocks: Ints

    def full_blocks(self, block_tokens: int) -> Ints:
        """Blocks that each request fills; the last token's KV is never there."""
        return (self.input_tokens + self.output_tokens - 1) // block_tokens


@dataclass(frozen=True)
class Case:
    """One run. experts: (m, 3) tokens, experts in use, seconds of one block of experts; None for a dense model."""

    name: str
    meta: Meta
    kernels: KernelTables
    experts: Floats | None
    requests: RunRequests
    measured: Times
    peer: Times | None


def read_case(folder: Path) -> Case:
    """Read a case folder. Raises InputError for a file, key or column that is missing or makes no sense."""
    meta = read_meta(folder / "meta.json")
    requests, measured = _requests(folder / "requests.csv.gz", meta.block_size)
    _refuse_too_long(folder / "meta.json", meta, requests)
    return Case(
        name=folder.name,
        meta=meta,
        kernels=read_kernels(folder, meta.skew_fit_enabled),
        experts=None if meta.model_shape.num_experts is None else read_experts(folder / "moe.csv.gz"),
        requests=requests,
        measured=measured,
        peer=_peer(folder / "peer_sim.csv.gz", requests.arrival_s.size),
    )


def _requests(path: Path, block_tokens: int) -> tuple[RunRequests, Times]:
    table = read_table(path)
    arrival_s = table.times("arrival_s")
    table.refuse(np.diff(arrival_s, prepend=0.0) < 0, "requests in order of arrival", "arrival_s")
    requests = RunRequests(
        arrival_s=arrival_s,
        input_tokens=table.counts("input_tokens", 1),
        output_tokens=table.counts("output_tokens", 1),
        prefix_parent=table.counts("prefix_parent", -1),
        prefix_blocks=table.counts("prefix_blocks"),
    )
    _check_prefixes(table, requests, block_tokens)
    queued, first, last = (table.times(f"real_{name}_s") for name in ("queued", "first_token", "last_token"))
    table.refuse(first <= queued, "a time after real_queued_s", "real_first_token_s")
    table.refuse(last < first, "a time no earlier than real_first_token_s", "real_last_token_s")
    return requests, Times(queued, first, last)


def _check_prefixes(table: CheckedTable, requests: RunRequests, block_tokens: int) -> None:
    parent, blocks = requests.prefix_parent, requests.prefix_blocks
    shares = blocks > 0
    unknown = shares & ((parent < 0) | (parent >= np.arange(parent.size)))
    table.refuse(unknown, "the number of an earlier request, from 0", "prefix_parent")
    most = np.minimum(requests.input_tokens // block_tokens, requests.full_blocks(block_tokens)[parent])
    expected = f"no more than the blocks of {block_tokens} tokens that this prompt and request prefix_parent fill"
    table.refuse(shares & (blocks > most), expected, "prefix_blocks")


def _refuse_too_long(path: Path, meta: Meta, requests: RunRequests) -> None:
    """Raise InputError for requests that the run served, and that an engine of so many blocks never could."""
    needed = -(-(requests.input_tokens + requests.output_tokens - 1) // meta.block_size)
    too_long = needed > meta.kv_blocks
    if too_long.any():
        first = int(np.argmax(too_long))
        given = meta.num_gpu_blocks or f"null, for which {meta.kv_blocks} are assumed"
        raise InputError(
            f"{path}: num_gpu_blocks: given {given}, but {too_long.sum()} of {needed.size} requests can never fit; the "
            f"first, request {first}, needs {needed[first]} blocks of {meta.block_size} tokens, and the run served it"
        )


def _peer(path: Path, request_count: int) -> Times | None:
    if not path.exists():
        return None
    table = read_table(path)
    request = table.counts("request")
    order = np.argsort(request, kind="stable")
    if not np.array_equal(request[order], np.arange(request_count)):
        raise InputError(
            f"{path}: given {request.size} rows, expected one for each request from 0 to {request_count - 1}"
        )
    arrival, first, last = (table.times(f"{name}_ns") * NS for name in ("arrival", "ttft", "latency"))
    return Times(*(value[order] for value in (arrival, arrival + first, arrival + last)))
