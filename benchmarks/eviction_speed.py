"""Block accesses per CPU-second of eviction policies: python benchmarks/eviction_speed.py [--peer PYTHON] > out.json

On Mooncake's conversation trace (KVPLAN_DATA) once, 4 and 16 times over. replay: one tier of a tenth of the distinct
blocks, no simulation. tiers: chains through HBM, DRAM and SSD of 2, 8 and 30 percent, every block pinned, committed and
released. --peer: a Python that has libcachesim, run on the same accesses and capacity in the same run, for the ratio.
The most of a few tries; compilation is not counted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

from pipeline.provenance import set_numba_cache  # noqa: E402

set_numba_cache(ROOT / "results")  # before anything compiled is imported

from pipeline.eviction.base import EvictionPolicy  # noqa: E402
from pipeline.eviction.facts import make_facts  # noqa: E402
from pipeline.eviction.replay import misses  # noqa: E402
from pipeline.placement.base import Placement  # noqa: E402
from pipeline.placement.replay import misses as chain_misses  # noqa: E402
from pipeline.placement.state import make_stack  # noqa: E402
from pipeline.spec import build  # noqa: E402

REPEATS, TRIES = (1, 4, 16), 3
SHARE, TIER_SHARES = 0.1, (0.02, 0.08, 0.3)
ORACLE_GENERAL = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])

Chains = tuple[Any, Any]


def read_chains() -> Chains:
    if "KVPLAN_DATA" not in os.environ:
        raise SystemExit("KVPLAN_DATA is not set: given no folder of real traces, expected one")
    path = Path(os.environ["KVPLAN_DATA"]) / "traces" / "mooncake_conversation.jsonl.gz"
    with gzip.open(path) as lines:
        chains = [json.loads(line)["hash_ids"] for line in lines]
    _, numbered = np.unique(np.concatenate(chains), return_inverse=True)
    return numbered.astype(np.int64), np.cumsum([0, *map(len, chains)])


def repeated(chains: Chains, times: int) -> Chains:
    ids, offset = chains
    starts = np.concatenate([offset[:-1] + i * ids.size for i in range(times)])
    return np.tile(ids, times), np.append(starts, times * ids.size)


def option(group: str, name: str, kind: Any) -> Any:
    return build(yaml.safe_load((ROOT / "conf" / group / f"{name}.yaml").read_text()), group, kind)


def timed(call: Callable[[], int], accesses: int) -> dict[str, float]:
    least_s, missed = np.inf, 0
    for _ in range(TRIES):
        before_s = time.process_time()
        missed = call()
        least_s = min(least_s, time.process_time() - before_s)
    return {"accesses_per_cpu_s": accesses / least_s, "miss_ratio": missed / accesses}


def in_replay(policy: EvictionPolicy, chains: Chains) -> dict[str, float]:
    ids, offset = chains
    count = int(ids.max()) + 1
    return timed(lambda: misses(policy, ids, count, int(SHARE * count), offset), ids.size)


def in_tiers(policy: EvictionPolicy, chains: Chains) -> dict[str, float]:
    ids, offset = chains
    count = int(ids.max()) + 1
    capacity = np.array([*(int(share * count) for share in TIER_SHARES), 0])
    placement = option("placement", "tiered", Placement)
    numbers = np.repeat(np.arange(offset.size - 1.0), np.diff(offset))
    facts = make_facts(ids, offset, numbers, count) if policy.needs_facts else None

    def run() -> int:
        stack, policies = make_stack(count, capacity, policy, placement, facts)
        return int(chain_misses(stack, policies, ids, offset, True))

    return timed(run, ids.size)


def peer_rows(python: str, chains: Chains, times: int) -> list[dict[str, Any]]:
    ids, _ = chains
    records = np.zeros(ids.size, ORACLE_GENERAL)
    records["time"], records["id"], records["size"] = np.arange(ids.size), ids + 1, 1
    order = np.argsort(ids, kind="stable")
    follows = np.full(ids.size, np.iinfo(np.int64).max)
    same = ids[order][1:] == ids[order][:-1]
    follows[order[:-1][same]] = order[1:][same] + 1  # libCacheSim counts accesses from one
    records["next"] = follows
    script = str(Path(__file__).with_name("eviction_peer.py"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.oracleGeneral.bin"
        records.tofile(path)
        capacity = int(SHARE * (int(ids.max()) + 1))
        command = [python, script, str(path), str(ids.size), str(capacity), str(TRIES)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [row | {"what": "libcachesim", "repeats": times} for row in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", metavar="PYTHON", help="a Python that has libcachesim")
    parser.add_argument("--only", nargs="*", default=None, help="policies, all if not given")
    given = parser.parse_args()
    names = given.only or sorted(path.stem for path in (ROOT / "conf" / "eviction").glob("*.yaml"))
    chains = read_chains()
    few = chains[0][: chains[1][20]], chains[1][:21]
    rows = []
    for times in REPEATS:
        many = repeated(chains, times)
        rows += peer_rows(given.peer, many, times) if given.peer else []
        for name in names:
            policy = option("eviction", name, EvictionPolicy)
            for what, measure in (("replay", in_replay), ("tiers", in_tiers)):
                measure(policy, few)  # compiles
                rows.append({"what": what, "policy": name, "repeats": times} | measure(policy, many))
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
