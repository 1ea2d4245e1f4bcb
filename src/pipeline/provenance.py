"""Digest of exactly the source a job runs, so that an edit re-runs only the jobs it can change."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SRC = Path(__file__).resolve().parents[1]
DIGEST_CHARACTERS = 12


def digest(value: Any) -> str:
    """Hash a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def code_digest(entry: Path, config: Any = None, src: Path = SRC) -> str:
    """Hash the script `entry`, the package modules it reaches by import, and the plug-ins `config` names.

    Imports are followed through the syntax tree, inside functions too. Package data (`.sql`) next to a reached
    module counts as part of it.
    """
    return _hash(_reach([entry, *_modules(targets(config), src)], src), src)


def kernel_digest(src: Path = SRC) -> str:
    """Hash every module that compiles with numba: the key of its cache, which does not see edited callees."""
    return _hash({file for file in src.rglob("*.py") if "numba" in file.read_text()}, src)


def set_numba_cache(results: Path) -> None:
    """Keep compiled kernels under the digest of all kernels; call before numba is imported."""
    os.environ["NUMBA_CACHE_DIR"] = str((results / ".numba" / kernel_digest()).resolve())


def targets(config: Any) -> Iterator[str]:
    """Yield the module of every `_target_` in a plain configuration tree."""
    if isinstance(config, Mapping):
        if "_target_" in config:
            yield str(config["_target_"]).rpartition(".")[0]
        config = config.values()
    if isinstance(config, Iterable) and not isinstance(config, str):
        for value in config:
            yield from targets(value)


def _reach(entries: list[Path], src: Path) -> set[Path]:
    todo, seen = entries, set[Path]()
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            seen.update(file.parent.glob("**/*.sql") if file.is_relative_to(src) else ())
            if file.suffix == ".py":
                todo += _modules(_imports(file, file.stat().st_mtime_ns), src)
    return seen


def _modules(names: Iterable[str], src: Path) -> list[Path]:
    found = []
    for name in names:
        path = src.joinpath(*name.split("."))
        found += [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]
    return found


@cache
def _imports(file: Path, _modified_ns: int) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(name for name in names if name.split(".")[0] == "pipeline")


def _hash(files: set[Path], src: Path) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(src) if file.is_relative_to(src) else Path(file.name)
        total.update(f"{name.as_posix()}\0".encode() + file.read_bytes())
    return total.hexdigest()[:DIGEST_CHARACTERS]
