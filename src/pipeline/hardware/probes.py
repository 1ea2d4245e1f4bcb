"""What can be measured on the machine at hand without a GPU: copies inside DRAM, and a disk's writes and reads."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.spec import InputError

Floats = NDArray[np.float64]
ALIGNMENT_BYTES = 4096


class Transfers(NamedTuple):
    """Measured transfers: bytes and seconds of each (n,), and how they were made."""

    moved_bytes: Floats
    time_s: Floats
    how: str


def copy_in_dram(block_bytes: Sequence[int], repeats: int) -> Transfers:
    """Time copies of blocks from one place in DRAM to another, one thread; the best of `repeats` per size.

    Source and target walk through buffers four times the largest block, so that a block is not found in a cache. Both
    are written before, so that no page is touched for the first time. Other work on the machine only slows a copy.
    """
    span = 4 * max(block_bytes)
    source, target = np.ones(span, np.uint8), np.full(span, 2, np.uint8)
    best = []
    for size in block_bytes:
        taken = []
        for i in range(repeats):
            start = (i * size * 3) % (span - size + 1)
            began = time.perf_counter()
            target[start : start + size] = source[start : start + size]
            taken.append(time.perf_counter() - began)
        best.append(min(taken))
    return Transfers(np.array(block_bytes, float), np.array(best), f"one thread, best of {repeats}")


def disk_transfers(
    folder: Path, block_bytes: Sequence[int], file_bytes: int, budget_s: float
) -> tuple[Transfers, Transfers]:
    """Time (writes, reads) of blocks in a temporary file of `file_bytes` in `folder`, at random offsets for reads.

    Reads bypass the page cache (O_DIRECT) where the file system allows it; else the file's pages are dropped first and
    the result says so. The file is removed even when something fails. Stops early after `budget_s` seconds in each
    direction. Raises InputError when the folder cannot be written.
    """
    buffer = mmap.mmap(-1, max(block_bytes))  # page-aligned, as O_DIRECT wants
    buffer.write(np.random.Generator(np.random.Philox(key=[0, 5])).bytes(max(block_bytes)))
    try:
        handle, name = tempfile.mkstemp(prefix=".kvplan_probe_", dir=folder)
    except OSError as exc:
        raise InputError(f"hardware.source.folder: {folder} cannot be written: {exc.strerror}") from exc
    os.close(handle)
    path = Path(name)
    try:
        writes = _writes(path, buffer, block_bytes, file_bytes, budget_s)
        return writes, _reads(path, buffer, block_bytes, file_bytes, budget_s)
    except OSError as exc:
        raise InputError(f"hardware.source.folder: measuring in {folder} failed: {exc.strerror}") from exc
    finally:
        path.unlink(missing_ok=True)
        buffer.close()


def _open(path: Path, flags: int) -> tuple[int, bool]:
    """Open bypassing the page cache if the file system can; say whether it does."""
    direct = getattr(os, "O_DIRECT", 0)
    if direct:
        try:
            return os.open(path, flags | direct), True
        except OSError:
            pass
    return os.open(path, flags), False


def _writes(path: Path, buffer: mmap.mmap, sizes: Sequence[int], file_bytes: int, budget_s: float) -> Transfers:
    file, is_direct = _open(path, os.O_WRONLY)
    try:

        def write(size: int, offset: int) -> None:
            os.pwrite(file, memoryview(buffer)[:size], offset)
            if not is_direct:
                os.fsync(file)

        moved, taken = _timed(write, sizes, file_bytes, budget_s, is_random=False)
        for offset in range(0, file_bytes, max(sizes)):  # so that there is a whole file to read
            os.pwrite(file, memoryview(buffer)[: min(max(sizes), file_bytes - offset)], offset)
        os.fsync(file)
    finally:
        os.close(file)
    how = "O_DIRECT" if is_direct else "through the page cache, fsync after each"
    return Transfers(moved, taken, f"{how}, one at a time")


def _reads(path: Path, buffer: mmap.mmap, sizes: Sequence[int], file_bytes: int, budget_s: float) -> Transfers:
    file, is_direct = _open(path, os.O_RDONLY)
    drop = getattr(os, "posix_fadvise", None)
    try:

        def read(size: int, offset: int) -> None:
            os.preadv(file, [memoryview(buffer)[:size]], offset)

        if not is_direct and drop is not None:
            drop(file, 0, file_bytes, os.POSIX_FADV_DONTNEED)
        moved, taken = _timed(read, sizes, file_bytes, budget_s, is_random=True)
    finally:
        os.close(file)
    cached = "page cache dropped by posix_fadvise" if drop is not None else "page cache NOT dropped: too fast"
    return Transfers(moved, taken, ("O_DIRECT" if is_direct else cached) + ", one at a time")


def _timed(
    move: Callable[[int, int], None], sizes: Sequence[int], file_bytes: int, budget_s: float, is_random: bool
) -> tuple[Floats, Floats]:
    """Median seconds of `move(size, offset)` by size; every size gets the same share of the budget."""
    rng = np.random.Generator(np.random.Philox(key=[0, 6]))
    medians = []
    for size in sizes:
        slots = max(file_bytes // size, 1)
        order = rng.permutation(slots) if is_random else np.arange(slots)
        taken: list[float] = []
        end = time.perf_counter() + budget_s / len(sizes)
        for slot in order:
            began = time.perf_counter()
            move(size, int(slot) * size)
            taken.append(time.perf_counter() - began)
            if time.perf_counter() > end:
                break
        medians.append(float(np.median(taken)))
    return np.array(sizes, float), np.array(medians)
