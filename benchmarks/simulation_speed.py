"""Requests per CPU-second of whole simulations, beside a peer in the same run.

python benchmarks/simulation_speed.py --peer /path/to/python > out.json

`--peer` is the Python of an environment of its own that holds ai-dynamo==1.3.1 (pip install ai-dynamo==1.3.1), whose
`dynamo.replay` is given the same requests; without it ours runs alone. Traces are read under KVPLAN_DATA. Figures are
CPU seconds of one process pinned to one core, the median of `--repeats`, ours and the peer's in turn; *marginal* is
what the requests cost beyond the start: the CPU of the most copies of the trace less that of one, over the requests
added.

* azure: Azure's conversations, 4 mixed instances, round robin; 1, 4 and 16 copies (the peer: 1 and 4).
* mooncake: Mooncake's conversations, 16 mixed instances, a router that knows prefixes; 1 and 2 copies.
* instances: Azure's conversations on 1 to 256 instances, at the same load each.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from one_simulation import repeated  # noqa: E402

from pipeline import tables  # noqa: E402
from pipeline.cell import Cell  # noqa: E402
from pipeline.config import Conf  # noqa: E402
from pipeline.grid import load_study  # noqa: E402
from pipeline.hardware.base import calibrate  # noqa: E402
from pipeline.schema import CONSTANTS, LINK_CALIBRATION, STEP_SAMPLES  # noqa: E402

PEER_BLOCK_TOKENS = 512
CASES = {
    "azure": {"trace": "azure_conversation", "routing": "round_robin", "instances": 4, "copies": (1, 4, 16)},
    "mooncake": {"trace": "mooncake_conversation", "routing": "cost_model", "instances": 16, "copies": (1, 2)},
}
PEER_ROUTERS = {"round_robin": "round_robin", "cost_model": "kv_router"}
INSTANCES = (1, 4, 16, 64, 256)


def cell_values(trace: str, routing: str, instances: int) -> dict[str, Any]:
    """Configuration of the simulation: H100, 8B, mixed instances whose KV lives in HBM."""
    settings = [f"trace={trace}", f"routing={routing}", "cluster=mixed_4", "tiers=hbm_only", "seed=0", "load=rate_1"]
    study = load_study(Conf(ROOT / "conf"), "default", settings)
    values = dict(next(cell.values for cell in study.cells if cell.stage == "route"))
    (pool,) = values["cluster"]["pools"]
    return values | {"cluster": values["cluster"] | {"pools": [pool | {"count": instances}]}}


def prepare(values: Mapping[str, Any], folder: Path) -> None:
    """Calibrate and train, once for all simulations."""
    cell = Cell.of(values)
    found = calibrate(cell.hardware, cell.model, cell.engine)
    for table, rows in (
        (STEP_SAMPLES, found.step_samples),
        (CONSTANTS, found.constants),
        (LINK_CALIBRATION, found.link_calibration),
    ):
        tables.write(folder, table, rows)
    trained = cell.predictor.train(found.step_samples, cell.model, cell.engine, cell.train_seed)
    tables.write_arrays(folder / "step_table.npz", trained.to_arrays())


def ours(values: Mapping[str, Any], prepared: Path, copies: int, rate_factor: float = 1.0) -> dict[str, Any]:
    """Run our simulation in a process of its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"values": values, "prepared": str(prepared), "copies": copies, "rate_factor": rate_factor}, file)
        file.flush()
        told = _run([sys.executable, str(ROOT / "benchmarks/one_simulation.py"), file.name])
    found: dict[str, Any] = json.loads(told["output"].splitlines()[-1])
    return found | {"cpu_s": told["cpu_s"]}


def peer(python: str, trace: Path, instances: int, router: str) -> dict[str, Any]:
    """Run the peer on the same requests in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--num-workers", str(instances), "--router-mode", router, "--replay-mode", "offline"]
        engine = json.dumps({"block_size": PEER_BLOCK_TOKENS})
        out = ["--report-json", f"{folder}/report.json", "--extra-engine-args", engine]
        return _run([python, "-m", "dynamo.replay", str(trace), *options, *out])


def _run(command: Sequence[str]) -> dict[str, Any]:
    """Run a command on one core; CPU seconds are the operating system's account of it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed:\n{output}")
    return {"output": output, "cpu_s": usage.ru_utime + usage.ru_stime}


def write_mooncake(values: Mapping[str, Any], copies: int, path: Path) -> None:
    """Write the requests in Mooncake's format, which the peer reads: blocks of 512 tokens, the last not whole."""
    cell = Cell.of(values)
    trace = repeated(cell.trace.load(cell.seed, cell.max_context_tokens).trace, copies, 1.0)
    fresh = trace.block_count
    with path.open("w") as file:
        for i in range(trace.request_count):
            blocks = math.ceil(int(trace.input_tokens[i]) / PEER_BLOCK_TOKENS)
            known = trace.block_ids[trace.block_offset[i] : trace.block_offset[i + 1]].tolist()[:blocks]
            ids = [*known, *range(fresh, fresh + blocks - len(known))]
            fresh += blocks - len(known)
            row = {
                "timestamp": round(float(trace.arrival_s[i]) * 1e3),
                "input_length": int(trace.input_tokens[i]),
                "output_length": int(trace.output_tokens[i]),
                "hash_ids": ids,
            }
            file.write(json.dumps(row) + "\n")


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name, value in runs[0].items() if not isinstance(value, str)]
    return {name: median(run[name] for run in runs) for name in names}


def _marginal(by_copies: Mapping[int, Mapping[str, Any]], requests: int) -> float:
    """Requests per CPU-second beyond the start, between one copy and the most."""
    most = max(by_copies)
    return requests * (most - 1) / (by_copies[most]["cpu_s"] - by_copies[1]["cpu_s"])


def case(name: str, python: str | None, repeats: int) -> dict[str, Any]:
    """Measure a case; ours and the peer's runs in turn."""
    about = CASES[name]
    values = cell_values(about["trace"], about["routing"], about["instances"])
    most = about["copies"][1]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(values, folder)
        ours(values, folder, 1)  # compiles
        runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for copies in about["copies"]:
            if python and copies <= most:
                write_mooncake(values, copies, folder / f"{copies}.jsonl")
            for _ in range(repeats):
                runs.setdefault(("ours", copies), []).append(ours(values, folder, copies))
                if python and copies <= most:
                    router = PEER_ROUTERS[about["routing"]]
                    told = peer(python, folder / f"{copies}.jsonl", about["instances"], router)
                    runs.setdefault(("peer", copies), []).append(told)
    found: dict[str, Any] = {}
    requests = runs["ours", 1][0]["requests"]
    for who in ("ours", "peer"):
        by_copies = {copies: _medians(told) for (of, copies), told in runs.items() if of == who}
        if by_copies:
            found[who] = {
                "by_copies": by_copies,
                "requests_per_cpu_s": requests / by_copies[1]["cpu_s"],
                "marginal_requests_per_cpu_s": _marginal(by_copies, requests),
            }
    if "peer" in found:
        ratios = ("requests_per_cpu_s", "marginal_requests_per_cpu_s")
        found["ours_over_peer"] = {ratio: found["ours"][ratio] / found["peer"][ratio] for ratio in ratios}
    return found


def by_instances(repeats: int) -> list[dict[str, Any]]:
    """CPU of a simulated request on 1 to 256 instances, at the load that 4 instances have with the trace as it is."""
    runs: dict[int, list[dict[str, Any]]] = {count: [] for count in INSTANCES}
    with tempfile.TemporaryDirectory() as folder:
        prepare(cell_values("azure_conversation", "round_robin", 4), Path(folder))
        for _ in range(repeats):  # in turn: what else the machine does comes and goes
            for count, told in runs.items():
                values = cell_values("azure_conversation", "round_robin", count)
                told.append(ours(values, Path(folder), 1, count / 4))
    rows = []
    for count, told in runs.items():
        figures = _medians(told)
        us_per_request = figures["simulate_cpu_s"] / figures["requests"] * 1e6
        rows.append({"instances": count, "us_per_request": us_per_request, **figures})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=[*CASES, "instances"], help="azure, mooncake, instances")
    parser.add_argument("--peer", help="Python of an environment with ai-dynamo==1.3.1")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if not os.environ.get("KVPLAN_DATA"):
        sys.exit("KVPLAN_DATA is not set: it must name the folder that holds traces/azure_llm_2023_conv.csv.gz")
    found = {}
    for name in args.cases:
        print(f"{name} ...", file=sys.stderr)
        found[name] = by_instances(args.repeats) if name == "instances" else case(name, args.peer, args.repeats)
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
