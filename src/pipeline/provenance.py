"""Digest of exactly the source a job runs, so that an edit re-runs only the jobs it can change."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.spec import InputError

SRC = Path(__file__).resolve().parents[1]
DIGEST_CHARACTERS = 12


def digest(value: Any) -> str:
    """Hash a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def file_checksum(path: Path, where: str) -> str:
    """SHA-256 of a file's content; raise InputError naming `where` it was given when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        raise InputError(f"{where}: {path} cannot be read: {exc.strerror}") from exc


@dataclass
class Sources:
    """The package's source as it is now: each file is read once."""

    src: Path = SRC
    _imported: dict[Path, set[str]] = field(default_factory=dict)
    _next: dict[Path, list[Path]] = field(default_factory=dict)
    _digests: dict[tuple[Path, ...], str] = field(default_factory=dict)

    def code_digest(self, entry: Path, config: Any = None) -> str:
        """Hash the script `entry`, the package modules it reaches by import, and the plug-ins `config` names.

        Imports are followed through the syntax tree, inside functions too. The files sql/*.sql beside a reached
        module count as part of it.
        """
        plug_ins = {file for module in set(targets(config)) for file in self._files(module)}
        entries = (entry, *sorted(plug_ins))
        if entries not in self._digests:
            self._digests[entries] = _hash(self._reach(list(entries)), self.src)
        return self._digests[entries]

    def kernel_digest(self) -> str:
        """Hash all that compiled code may have taken from another file than its own: the key of numba's cache.

        numba sees an edit of the file that a kernel stands in, but not of what it calls, nor of constants it imports.
        """
        compiled = [file for file in self.src.rglob("*.py") if "numba" in self._names(file)]
        return _hash(self._reach([file for kernel in compiled for file in self._reached_from(kernel)]), self.src)

    def _reach(self, todo: list[Path]) -> set[Path]:
        seen = set[Path]()
        while todo:
            file = todo.pop()
            if file not in seen:
                seen.add(file)
                todo += self._reached_from(file)
        return seen

    def _reached_from(self, file: Path) -> list[Path]:
        if file.suffix != ".py":
            return []
        if file not in self._next:
            data = file.parent.glob("sql/*.sql")
            beside = (p for name in self._names(file) for p in [file.with_name(f"{name}.py")] if p.is_file())
            self._next[file] = [*data, *beside, *(found for name in self._names(file) for found in self._files(name))]
        return self._next[file]

    def _names(self, file: Path) -> set[str]:
        if file not in self._imported:
            self._imported[file] = _imported(file)
        return self._imported[file]

    def _files(self, module: str) -> list[Path]:
        path = self.src.joinpath(*module.split("."))
        return [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]


def _imported(file: Path) -> set[str]:
    """Names of modules that a file imports, and of what it imports from them (which may be modules)."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def set_numba_cache(results: Path) -> None:
    """Keep compiled kernels under the digest of all kernels; call before numba is imported."""
    os.environ["NUMBA_CACHE_DIR"] = str((results / ".numba" / Sources().kernel_digest()).resolve())


def targets(config: Any) -> Iterator[str]:
    """Yield the module of every `_target_` in a plain configuration tree."""
    if isinstance(config, Mapping):
        if "_target_" in config:
            yield str(config["_target_"]).rpartition(".")[0]
        config = config.values()
    if isinstance(config, Iterable) and not isinstance(config, str):
        for value in config:
            yield from targets(value)


def _hash(files: set[Path], src: Path) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(src) if file.is_relative_to(src) else Path(file.name)
        total.update(f"{name.as_posix()}\0".encode() + file.read_bytes())
    return total.hexdigest()[:DIGEST_CHARACTERS]
