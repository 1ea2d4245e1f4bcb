"""README.md says what is true: its tree lists the files there are, its commands name options there are."""

from __future__ import annotations

import re

import pytest
from readme_tree import ROOT, renewed

from pipeline.parse import plan_of

README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"--config (?:study=(\w+) ?)?(?:'set=([^']+)')?", README)
STANDS_FOR = re.compile(r"NAME|/data/mine|path\.to")


def test_the_tree_is_that_of_the_files() -> None:
    assert renewed(README) == README, "run: python tests/readme_tree.py"


@pytest.mark.parametrize(("study", "settings"), [c for c in COMMANDS if not STANDS_FOR.search(" ".join(c))])
def test_commands_lay_out(study: str, settings: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVPLAN_DATA", raising=False)
    assert plan_of(ROOT, {"study": study or "default", "set": settings}).keys("place")
