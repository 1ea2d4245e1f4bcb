"""Ask the warehouse: python workflow/scripts/sql.py "select ..." """

import sys
from pathlib import Path

from pipeline.spec import InputError
from pipeline.warehouse.ask import ask

if __name__ == "__main__":
    try:
        ask(Path("results/warehouse.duckdb"), " ".join(sys.argv[1:]))
    except InputError as exc:
        sys.exit(f"kvplan: {exc}")
