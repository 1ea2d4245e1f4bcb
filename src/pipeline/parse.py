"""What the Snakefile needs: the plan of the study named on the command line, or one line that says what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import Conf
from pipeline.grid import load_study
from pipeline.plan import Plan, freeze, make_plan
from pipeline.settings import split_settings
from pipeline.spec import InputError
from pipeline.warehouse.previous import refuse_other_version

ALLOWED = ("study", "set")
WAREHOUSE = "warehouse.duckdb"


def parse(root: Path, results: Path, config: Mapping[str, Any]) -> Plan:
    """Return the plan for `--config study=NAME 'set=...'` and write its job files under `results`.

    Ends the process with one line on the terminal and status 1 when the study cannot be run as given.
    """
    try:
        plan = plan_of(root, config)
        refuse_other_version(results / WAREHOUSE)
        freeze(plan, results)
    except InputError as exc:
        sys.exit(f"kvplan: {exc}")
    except OSError as exc:
        sys.exit(f"kvplan: {results} cannot be written: {exc}")
    for remark in plan.remarks:
        print(f"kvplan: {remark}", file=sys.stderr)
    return plan


def plan_of(root: Path, config: Mapping[str, Any]) -> Plan:
    """Lay out the study that `config` names; raise InputError for the first thing that is wrong."""
    unknown = sorted(set(config) - set(ALLOWED), key=str)
    if unknown:
        raise InputError(
            f"--config: unknown key {unknown[0]!r}; allowed: {', '.join(ALLOWED)} (overrides go inside set)"
        )
    settings = split_settings(config.get("set", ""))
    return make_plan(load_study(Conf(root / "conf"), config.get("study", "default"), settings), root)
