"""Lines of a plain, gzip or zstd file, streamed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.spec import InputError

LINE_LIMIT_BYTES = 16 * 2**20
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
PARQUET = b"PAR1"
FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zX": "an xz file",
    PARQUET: "a parquet file (trace=parquet_file reads one)",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
"""First bytes of what is not read."""

ReadLines = Callable[[Path], Iterator[bytes]]


def open_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of `path`, line ends included, in memory bounded by the longest line.

    Compression is told by the first bytes, not by the name. Raises InputError for a file that cannot be opened or
    decompressed to its end, or is of another kind, and for a line over 16 MiB.
    """
    compression = _compression(path)
    row = 0
    try:
        with pa.input_stream(str(path), compression=compression) as stream, io.BufferedReader(stream, 2**16) as lines:
            while line := lines.readline(LINE_LIMIT_BYTES):
                row += 1
                if len(line) == LINE_LIMIT_BYTES and not line.endswith(b"\n"):
                    raise InputError(
                        f"{path}, row {row}: longer than {LINE_LIMIT_BYTES} bytes, expected one row a line"
                    )
                yield line
    except OSError as exc:
        raise InputError(f"{path}, after row {row}: cannot be read to its end: {exc}") from exc


def start_of(path: Path) -> bytes:
    """First bytes of `path`. Raises InputError for a file that cannot be opened."""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except (OSError, ValueError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else exc
        raise InputError(f"trace.path: given {str(path)!r}, expected a readable file ({problem})") from exc


def _compression(path: Path) -> str | None:
    start = start_of(path)
    foreign = next((kind for magic, kind in FOREIGN.items() if start.startswith(magic)), None)
    if foreign:
        raise InputError(
            f"trace.path: given {str(path)!r}, which is {foreign}, expected UTF-8 text, plain or in gzip or zstd"
        )
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
