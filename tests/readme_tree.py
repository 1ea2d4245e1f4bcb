"""The tree in README.md: one comment per file, taken from the file itself. `python tests/readme_tree.py` renews it."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- tree: python tests/readme_tree.py -->\n", "<!-- /tree -->\n"
WIDTH = 34
COMMENTED = {
    "Makefile": "make run, test, lint, sql, lock",
    "pyproject.toml": "dependencies and the settings of the linters",
    "requirements.lock": "every package, pinned and hashed",
    ".ci": "the gate: linters and tests on a clean checkout",
    "conf": "Hydra: one YAML per option, one folder per group",
    "workflow": "rules and the scripts they call",
    "src": "",
    "pipeline": "the package",
    "benchmarks": "speed as ratios within one run, JSON out",
    "tests": "run by `make test`; conf/ options and studies are tested by existing",
    "rules": "one file per stage",
    "scripts": "shims: read inputs, call the package, write tables",
    "profiles": "Snakemake's settings: default holds for every run, slurm for that scheduler",
    "sql": "stg_* staging, mart_* marts, check_* checks, report_* tables of the page, claim_* evidence of claims",
    "data": "small own-made samples of each trace format",
}
FOLDED = ("tests", "sql", "data", ".ci", "profiles")


def comment(path: Path) -> str:
    """What a file says of itself: first line of its docstring, or its first comment."""
    if path.name in COMMENTED:
        return COMMENTED[path.name]
    text = path.read_text() if path.is_file() else (path / "__init__.py").read_text()
    if path.suffix == ".py" or path.is_dir():
        return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0].rstrip(".")
    return next((line.lstrip("# ").rstrip(".") for line in text.splitlines() if line.startswith("#")), "")


def tree() -> str:
    """The tree as a Markdown block."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [Path(name) for name in listed if Path(name).name not in ("__init__.py", "py.typed", "README.md")]
    return START + "```\n" + "\n".join(_lines(files, Path(), 0)) + "\n```\n" + END


def _lines(files: list[Path], folder: Path, depth: int) -> Iterator[str]:
    inside = [file for file in files if folder in file.parents]
    children = sorted({Path(*file.parts[: depth + 1]) for file in inside}, key=lambda p: (len(p.parts), p.name))
    for child in sorted(children, key=lambda p: ((ROOT / p).is_dir(), p.name)):
        path = ROOT / child
        if path.name.startswith(".") and path.name not in COMMENTED:
            continue
        if folder == Path("conf") and path.is_dir():
            options = sorted(p.stem for p in path.glob("*.yaml") if not p.name.startswith("_"))
            yield _line(depth, f"{child.name}/", ", ".join(options))
        elif path.is_dir():
            yield _line(depth, f"{child.name}/", comment(path))
            if child.name not in FOLDED:
                yield from _lines(files, child, depth + 1)
        else:
            yield _line(depth, child.name, comment(path))


def _line(depth: int, name: str, text: str) -> str:
    return f"{'  ' * depth}{name}".ljust(WIDTH) + text


def renewed(readme: str) -> str:
    """README.md with the tree of the files there are."""
    before, _, rest = readme.partition(START)
    return before + tree() + rest.partition(END)[2]


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(renewed(path.read_text()))
