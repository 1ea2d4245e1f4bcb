"""`Row`: one request as a file states it, and the checks that every reader makes of its fields."""

from __future__ import annotations

import math
import re
import reprlib
from array import array
from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import NamedTuple

MOST_TOKENS = 10**9
MOST_NS = 2**63 - 1
NO_BLOCKS = array("Q")

_NUMBER = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,4})?", re.ASCII)
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,40}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


class Row(NamedTuple):
    """One request: arrival in ns from any origin; session None if the file has none; class "" likewise.

    block_ids: the ids of its full prompt blocks, as in the file (0 to 2^64 - 1). think_s: from the end of the request
    before it in its session to its arrival, NaN if that is not known. request_id: what the file calls it; no two may
    be called the same. number: the line that it is counted under, 0 for the one it was read from.
    """

    arrival_ns: int
    input_tokens: int
    output_tokens: int
    session: Hashable | None = None
    class_name: str = ""
    block_ids: array[int] = NO_BLOCKS
    think_s: float = math.nan
    request_id: Hashable | None = None
    number: int = 0


class Left(NamedTuple):
    """Something in a file that is no request of the trace: why, and whether it was a request; number as in `Row`.

    is_kept: it says something of a request that is kept.
    """

    reason: str
    is_request: bool
    number: int = 0
    is_kept: bool = False


class LineParser:
    """Reads the lines of one file, in order; may remember earlier ones."""

    def line(self, text: str, number: int) -> Iterable[Row | Left]:
        """What a non-blank line, the `number`-th of the file, tells; RowError if it cannot be read."""
        raise NotImplementedError

    def end(self) -> Iterable[Row | Left]:
        """What is known only once the last line has been read."""
        return ()


class RowError(ValueError):
    """A line that cannot be read: the field at fault, and what is wrong with it.

    fatal: the rest of the file makes no sense without this line (a header). requests: how many are lost with it.
    """

    requests = 1

    def __init__(self, field: str, problem: str, fatal: bool = False) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem
        self.fatal = fatal


def nested(name: str, problem: str) -> RowError:
    """Name a place inside a field (`requests[3].in`); rows dropped for it are counted under the field as a whole."""
    error = RowError(name, problem)
    error.field = name.partition("[")[0]
    return error


def shown(value: object) -> str:
    """Show a value from a file in a message, shortened."""
    return ascii(reprlib.repr(value)[:80])[1:-1] if not isinstance(value, str) else ascii(value[:40])


def number_in(text: str, field: str) -> float:
    """Read a decimal number from text; no inf, NaN, underscores or other scripts' digits."""
    text = text.strip()
    if not text:
        raise RowError(field, "missing")
    if not _NUMBER.fullmatch(text):
        raise RowError(field, f"given {shown(text)}, expected a number")
    return float(text)


def name_in(text: str, field: str) -> str:
    """Check the name of a class, a session or a request: stripped, not empty."""
    text = text.strip()
    if not text:
        raise RowError(field, "missing")
    return text


def tokens(value: object, field: str, least: int) -> int:
    """Check a token count: a whole number from `least` to 10^9."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise RowError(field, f"given {shown(value)}, expected a whole number of tokens")
    if not least <= value <= MOST_TOKENS:
        raise RowError(field, f"given {shown(value)}, expected {least} to {MOST_TOKENS} tokens")
    return int(value)


def time_ns(value: object, field: str, unit_s: float) -> int:
    """Turn a time in units of `unit_s` seconds into ns: finite, not negative, under 292 years."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError(field, f"given {shown(value)}, expected a number")
    if not 0 <= value <= MOST_NS / 1e9 / unit_s:
        raise RowError(field, f"given {shown(value)}, expected a time from 0 to 292 years, in units of {unit_s:g} s")
    return min(round(value * (unit_s * 1e9)), MOST_NS)


def date_ns(text: str, field: str) -> int:
    """Read an ISO 8601 date and time as ns since 1970: any number of fractional digits, UTC if no zone is given."""
    match = _DATE.fullmatch(text.strip())
    if not match:
        raise RowError(field, f"given {shown(text)}, expected a date and time such as 2023-11-16 18:15:46.6805900")
    day, clock, fraction, zone = match.groups()
    offset = "+00:00" if zone in (None, "Z", "UTC") else zone
    try:
        seconds = math.floor(datetime.fromisoformat(f"{day}T{clock}{offset}").timestamp())
    except (ValueError, OverflowError) as exc:
        raise RowError(field, f"given {shown(text)}, expected a date and time that exists ({exc})") from None
    value = seconds * 10**9 + int((fraction or "0").ljust(9, "0")[:9])
    if not 0 <= value <= MOST_NS:
        raise RowError(field, f"given {shown(text)}, expected a date from 1970 to 2262")
    return value


def block_ids(value: object, field: str) -> array[int]:
    """Check a list of block ids: integers from 0 to 2^64 - 1."""
    try:
        if not isinstance(value, list) or bool in set(map(type, value)):
            raise TypeError
        return array("Q", value)
    except (TypeError, OverflowError):
        raise RowError(field, f"given {shown(value)}, expected a list of integers from 0 to 2^64 - 1") from None


def full_blocks(ids: array[int], field: str, input_tokens: int, block_tokens: int) -> array[int]:
    """Ids of the full blocks of a prompt, of which a file lists all blocks (the last one partial) or the full ones."""
    full, every = input_tokens // block_tokens, -(-input_tokens // block_tokens)
    if len(ids) not in (full, every):
        raise RowError(
            field,
            f"given {len(ids)} ids for {input_tokens} tokens, expected {every} (all blocks) or {full} (full blocks) of "
            f"{block_tokens} tokens",
        )
    return ids[:full] if full else NO_BLOCKS
