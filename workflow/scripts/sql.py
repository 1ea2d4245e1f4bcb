"""Ask the warehouse: python workflow/scripts/sql.py "select ...", or the query in the environment as QUERY."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    sys.path.insert(0, str(ROOT / "src"))
    try:
        from pipeline.spec import InputError
        from pipeline.warehouse.ask import ask
    except ModuleNotFoundError as exc:
        sys.exit(f"kvplan: no package {exc.name} in {sys.executable}; ask with make sql, or with .venv/bin/python")
    try:
        ask(ROOT / "results/warehouse.duckdb", " ".join(sys.argv[1:]) or os.environ.get("QUERY", ""))
    except InputError as exc:
        sys.exit(f"kvplan: {exc}")


if __name__ == "__main__":
    main()
