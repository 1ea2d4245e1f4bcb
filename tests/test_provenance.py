"""A digest changes with the code a job reaches, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.provenance import Sources, digest

CONFIG = {"eviction": {"_target_": "pipeline.plug.lru.Lru"}, "list": [{"_target_": "pipeline.plug.fifo.Fifo"}]}


@pytest.fixture
def src(tmp_path: Path) -> Path:
    files = {
        "pipeline/__init__.py": "",
        "pipeline/helper.py": "import numba\nX = 1\n",
        "pipeline/unrelated.py": "Y = 1\n",
        "pipeline/plug/__init__.py": "",
        "pipeline/plug/lru.py": "from pipeline import helper\n",
        "pipeline/plug/fifo.py": "def f():\n    from pipeline.deep.inside import thing\n",
        "pipeline/deep/__init__.py": "",
        "pipeline/deep/inside.py": "thing = 1\n",
        "pipeline/deep/sql/mart.sql": "select 1",
        "pipeline/other/__init__.py": "",
        "pipeline/other/sql/mart.sql": "select 1",
        "script.py": "print(1)\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "is_reached"),
    [
        ("script.py", True),
        ("pipeline/helper.py", True),
        ("pipeline/plug/lru.py", True),
        ("pipeline/deep/inside.py", True),
        ("pipeline/deep/sql/mart.sql", True),
        ("pipeline/unrelated.py", False),
        ("pipeline/other/sql/mart.sql", False),
    ],
)
def test_digest_follows_imports_and_targets(src: Path, file: str, is_reached: bool) -> None:
    before = Sources(src).code_digest(src / "script.py", CONFIG)
    (src / file).write_text((src / file).read_text() + "# edited\n")
    assert (Sources(src).code_digest(src / "script.py", CONFIG) != before) == is_reached


def test_digest_without_the_plug_in_does_not_change_with_it(src: Path) -> None:
    before = Sources(src).code_digest(src / "script.py", {})
    (src / "pipeline/plug/lru.py").write_text("edited = True\n")
    assert Sources(src).code_digest(src / "script.py", {}) == before


@pytest.mark.parametrize(
    ("file", "is_covered"),
    [("pipeline/helper.py", True), ("pipeline/plug/lru.py", False), ("pipeline/deep/inside.py", False)],
)
def test_kernel_digest_covers_what_numba_does_not_see(src: Path, file: str, is_covered: bool) -> None:
    (src / "pipeline/plug/lru.py").write_text("import numba\nfrom pipeline import helper\n")
    before = Sources(src).kernel_digest()
    (src / file).write_text((src / file).read_text() + "Z = 2\n")
    assert (Sources(src).kernel_digest() != before) == is_covered


def test_digest_ignores_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
