"""Time and memory of reading a large trace: python benchmarks/trace_reading.py [GIGABYTES] > out.json

Mooncake's conversations (under KVPLAN_DATA) one after the other, each copy with blocks of its own, until the file is so
large; read as trace=mooncake_file in this process. Progress on stderr.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from one_simulation import most_mb  # noqa: E402

from pipeline.spec import build  # noqa: E402
from pipeline.trace.base import TraceSource  # noqa: E402

COPY_MS, COPY_BLOCKS = 3_600_000, 10**6
CONTEXT_TOKENS = 131_072


def write(path: Path, least_bytes: float) -> None:
    """Write copies of the trace until the file is as large as asked."""
    source = Path(os.environ["KVPLAN_DATA"]) / "traces/mooncake_conversation.jsonl.gz"
    with gzip.open(source, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    with path.open("w") as file:
        for copy in itertools.count():
            for row in rows:
                moved = [block + copy * COPY_BLOCKS for block in row["hash_ids"]]
                file.write(json.dumps(row | {"timestamp": row["timestamp"] + copy * COPY_MS, "hash_ids": moved}) + "\n")
            if file.tell() >= least_bytes:
                return


def main() -> None:
    if not os.environ.get("KVPLAN_DATA"):
        sys.exit("KVPLAN_DATA is not set: it must name the folder that holds traces/mooncake_conversation.jsonl.gz")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jsonl"
        write(path, float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e9)
        print(f"{path.stat().st_size / 1e9:.2f} GB written, reading ...", file=sys.stderr)
        option = yaml.safe_load((ROOT / "conf/trace/mooncake_file.yaml").read_text()) | {"path": str(path)}
        before_s = time.process_time()
        trace = build(option, "trace", TraceSource).load(0, CONTEXT_TOKENS).trace
        figures = {
            "file_bytes": path.stat().st_size,
            "requests": trace.request_count,
            "blocks": int(trace.block_ids.size),
            "cpu_s": time.process_time() - before_s,
            "most_mb": most_mb(),
        }
    json.dump(figures, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
