"""`trace=auto`: tell a file's format by its first lines, and choose the option that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pipeline.config import Conf
from pipeline.settings import Setting
from pipeline.spec import TARGET, InputError, class_of
from pipeline.trace.file_source import FileSource
from pipeline.trace.lines import open_lines, start_of

AUTO = "auto"
FIRST_LINES = 20
OWN_FILE = "???"
"""Path of an option that is for a file of the user's own."""
NEITHER = "which looks like none of the formats that are known"


def choose_formats(conf: Conf, settings: Sequence[Setting]) -> tuple[list[Setting], list[str]]:
    """Put the option that reads the file trace.path in the place of `trace=auto`; also returned: remarks on what it is.

    Raises InputError, in one line, where no format or more than one fits, or several files differ in theirs.
    """
    if not any(s.key == "trace" and AUTO in s.values for s in settings):
        return list(settings), []
    paths = next((s.values for s in settings if s.key == "trace.path"), ())
    if not paths:
        raise InputError("trace.path: missing; trace=auto looks at that file: 'set=trace=auto trace.path=FILE'")
    readers = _readers(conf)
    found = {str(path): _format_of(Path(str(path)).expanduser(), readers) for path in paths}
    if len(set(found.values())) > 1:
        each = ", ".join(f"{path}: {option}" for path, option in found.items())
        raise InputError(f"trace=auto: given files of several formats ({each}), expected one; run them one by one")
    option = next(iter(found.values()))
    remarks = [f"trace=auto: {path} is read as trace={option}" for path in found]
    return [_instead(s, option) if s.key == "trace" else s for s in settings], remarks


def _instead(setting: Setting, option: str) -> Setting:
    return replace(setting, values=tuple(dict.fromkeys(option if v == AUTO else v for v in setting.values)))


def _readers(conf: Conf) -> dict[str, type[FileSource]]:
    """Readers of files of the user's own, by option."""
    options = conf.catalogue({"trace": conf.options("trace")})["trace"]
    classes = {name: class_of(o[TARGET], f"trace={name}") for name, o in options.items() if o.get("path") == OWN_FILE}
    return {name: found for name, found in classes.items() if issubclass(found, FileSource)}


def _format_of(path: Path, readers: dict[str, type[FileSource]]) -> str:
    start = start_of(path)
    fitting = [name for name, reader in readers.items() if reader.magic and start.startswith(reader.magic)]
    lines: list[str] = []
    if not fitting:
        lines = list(islice(_texts(path), FIRST_LINES))
        if not lines:
            raise InputError(f"{path}: is empty, expected at least one request")
        fitting = [name for name, reader in readers.items() if reader.looks_like(lines)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InputError(f"trace.path: given {str(path)!r}, which may be {' or '.join(fitting)}; say trace=ONE of them")
    if lines[0] in ("[", "{") or lines[0].startswith("[{"):
        raise InputError(
            f"trace.path: given {str(path)!r}, JSON over several lines or in a list; expected one object a line"
        )
    raise InputError(
        f"trace.path: given {str(path)!r}, {NEITHER} ({', '.join(readers)}); it begins with {lines[0][:80]!r}; "
        "trace=csv_file reads any CSV once its columns are named (conf/trace/csv_file.yaml)"
    )


def _texts(path: Path) -> Iterator[str]:
    for raw in open_lines(path):
        if text := raw.decode("utf-8-sig", "replace").strip():
            yield text
