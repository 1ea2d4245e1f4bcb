"""From cells to jobs: each job is an item under a key, hash(its configuration + keys upstream + code it reaches)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.cell import Cell
from pipeline.config import data_folder
from pipeline.fidelity.runs import Runs, checksum
from pipeline.grid import CellConfig, Study
from pipeline.hardware.spec import Hardware
from pipeline.placement.capacity import block_bytes
from pipeline.predictor.base import Predictor
from pipeline.provenance import Sources, digest, file_checksum
from pipeline.schema import SIMULATED
from pipeline.spec import InputError, Spec, build
from pipeline.tables import replacing
from pipeline.values import Price, Slo

LIMITS = ("tensor_parallel", "max_running", "max_batched_tokens")
UNCALIBRATED = {"_target_": "pipeline.hardware.datasheet.Datasheet"}
SCRIPTS = {"place": "simulate", "route": "simulate"}
"""Stages whose script has another name."""
OUTPUTS = {
    "calibrate": ("step_samples.parquet", "constants.parquet", "link_calibration.parquet"),
    "train": ("step_table.npz", "predictor_accuracy.parquet"),
    "break_even": ("break_even.parquet",),
    "trace": ("trace.npz", "trace_quality.parquet"),
    "describe": ("card.html", "card.json"),
    "fit": ("fitted.yaml", "goodness.csv"),
    "capacity": ("capacity.json",),
    "place": tuple(f"{table}.parquet" for table in SIMULATED),
    "replay": ("fidelity.parquet", "predictor_accuracy.parquet"),
    "route": tuple(f"{table}.parquet" for table in (*SIMULATED, "routing_decisions")),
}


LEAST_TRAFFIC_MB = 2000
BREAK_EVEN_NAMES = ("hardware", "model", "predictor", "engine")
ASIDE = ("describe", "fit")
"""Stages for a target of their own, which the warehouse does not gather."""


@dataclass(frozen=True)
class Item:
    """One job: what it is called, all it reads (configuration, upstream keys by stage, code), and so its key."""

    stage: str
    label: str
    config: Mapping[str, Any]
    upstream: Mapping[str, Sequence[str]]
    code: str

    @cached_property
    def key(self) -> str:
        """The content key: names, which change no result, do not enter."""
        return digest([self.stage, self.config, self.upstream, self.code])


@dataclass
class Plan:
    """All jobs of a study by stage and key."""

    study: Study
    root: Path
    items: dict[str, dict[str, Item]] = field(default_factory=lambda: {stage: {} for stage in OUTPUTS})
    remarks: list[str] = field(default_factory=list)
    checksums: dict[Path, str] = field(default_factory=dict)
    sources: Sources = field(default_factory=Sources)

    def keys(self, stage: str) -> list[str]:
        """Keys of a stage, in a stable order."""
        return sorted(self.items[stage])

    def add(self, stage: str, label: str, config: Any, upstream: Mapping[str, Iterable[str]]) -> str:
        """Add a job (once) and return its key."""
        ups = {name: sorted(set(keys)) for name, keys in upstream.items()}
        script = self.root / f"workflow/scripts/{SCRIPTS.get(stage, stage)}.py"
        item = Item(stage, label, config, ups, self.sources.code_digest(script, config))
        self.items[stage].setdefault(item.key, item)
        return item.key

    def traffic_mb(self, stage: str, key: str) -> int:
        """Memory, in MB, that a job which reads or describes a whole trace may take.

        A gigabyte of Mooncake's JSON took 3.3 GB; gzip makes it a tenth of its size.
        """
        path = self.items[stage][key].config["trace"].get("path")
        if path is None or not Path(path).is_file():
            return LEAST_TRAFFIC_MB
        size_mb = Path(path).stat().st_size / 1e6
        return max(LEAST_TRAFFIC_MB, round(size_mb * (40 if Path(path).suffix in (".gz", ".zst") else 4)))

    @property
    def outputs(self) -> Mapping[str, Sequence[str]]:
        """Files that a job of each stage writes."""
        return OUTPUTS

    @cached_property
    def aggregate(self) -> Item:
        """The job that gathers all others."""
        config = {"study": self.study.name, "about": self.study.about, "report": self.study.report}
        code = self.sources.code_digest(self.root / "workflow/scripts/aggregate.py")
        return Item("aggregate", self.study.name, config, {s: self.keys(s) for s in OUTPUTS if s not in ASIDE}, code)

    def remark(self, text: str) -> None:
        """Note something that the user must see, once."""
        if text not in self.remarks:
            self.remarks.append(text)


def make_plan(study: Study, root: Path) -> Plan:
    """Validate every cell of `study` and lay out its jobs. Raises InputError for the first thing that is wrong."""
    plan = Plan(study, root, remarks=list(study.remarks))
    _check_report(study.report)
    shards: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for cell in study.cells:
        shard = (cell.stage, *(str(cell.axes.get(axis, cell.choices.get(axis))) for axis in study.scatter[cell.stage]))
        shards.setdefault(shard, []).append(_cell_item(plan, cell))
    for (stage, *names), found in shards.items():
        cells = sorted(found, key=digest)  # in whatever order the grid has them, it is the same job
        stages = {above for cell in cells for above in cell["upstream"]}  # a load given as a rate needs no capacity
        upstream = {s: [cell["upstream"][s] for cell in cells if s in cell["upstream"]] for s in sorted(stages)}
        plan.add(stage, " x ".join(names), {"study": study.name, "cells": cells}, upstream)
    for option, cell in {cell.choices["trace"]: cell for cell in reversed(study.cells)}.items():
        _describe(plan, option, cell)
    if study.replays is not None:
        _replays(plan, study.replays)
    return plan


def _describe(plan: Plan, option: str, cell: CellConfig) -> None:
    """Lay out the description of a trace as the first cell with it meets it, before the tiers of its reference."""
    values = _fall_back(plan, {**cell.values, "tiers": cell.reference["tiers"], "load": None})
    built = Cell.of(values)
    measured = _measured(plan, values, cell.choices, built)
    upstream = {"trace": _trace(plan, values, cell.choices, built), "calibrate": measured["calibrate"]}
    label = f"{option} on {cell.choices['hardware']}, {cell.choices['model']}"
    config = {name: values[name] for name in ("trace", "tiers", "engine", "model", "hardware", "seed")}
    plan.add("describe", label, config, {stage: [key] for stage, key in upstream.items()})
    if built.trace.file() is not None:
        part = {"trace": values["trace"], "seed": values["seed"]}
        plan.add("fit", f"chat to {option}", part, {"trace": [upstream["trace"]]})


def _check_report(report: Mapping[str, Any]) -> None:
    """Build what only the last job uses: a mistake in it is not to be found after hours of simulation."""
    build(report["slo"], "report_slo", Slo)
    for price in (report["price"], *report["prices"]):
        build(price, "price", Price)
    build(report["claims"], "claims", Spec)


def _replays(plan: Plan, replays: Mapping[str, Any]) -> None:
    """Lay out a job for each measured run that the study replays, and each predictor of its step times."""
    for predictor in replays["predictors"]:
        build(predictor, "predictor", Predictor)
    for folder in build(replays["runs"], "fidelity", Runs).folders():
        case = {"folder": str(folder.resolve()), "checksum": checksum(folder)}
        for predictor in replays["predictors"]:
            config = {"runs": replays["runs"], "seed": replays["seed"], "predictor": predictor, **case}
            plan.add("replay", f"{folder.name} {predictor['name']}", config, {})


def _cell_item(plan: Plan, cell: CellConfig) -> dict[str, Any]:
    values = _fall_back(plan, dict(cell.values))
    reference = _fall_back(plan, dict(cell.reference))
    built = Cell.of(values)
    Cell.of(reference)
    measured = _measured(plan, values, cell.choices, built)
    _break_even(plan, values, cell.choices, built, measured)
    upstream = {"trace": _trace(plan, values, cell.choices, built), **measured}
    if built.load is not None and built.load.share_of_capacity_ratio is not None:
        tuned = {"trace": _trace(plan, reference, cell.choices, built), **measured}
        label = f"{cell.stage} {cell.choices['trace']} on {cell.choices['cluster']}"
        config = {"cell": reference | {"load": None}}
        upstream["capacity"] = plan.add("capacity", label, config, {stage: [key] for stage, key in tuned.items()})
    return {"choices": dict(cell.choices), "axes": dict(cell.axes), "values": values, "upstream": upstream}


def _measured(plan: Plan, values: Mapping[str, Any], choices: Mapping[str, str], cell: Cell) -> dict[str, str]:
    """Keys of the calibration and the step table that a cell rests on."""
    engine = {"_target_": "pipeline.values.EngineLimits", **{name: values["engine"][name] for name in LIMITS}}
    machine = {
        "hardware": values["hardware"],
        "model": values["model"],
        "engine": engine,
        "checksum": _checksum(plan, "hardware.source.path", cell.hardware.source.file()),
    }
    label = f"{choices['hardware']} {choices['model']} tp{engine['tensor_parallel']}"
    calibrate = plan.add("calibrate", label, machine, {})
    config = {
        "model": values["model"],
        "engine": engine,
        "predictor": values["predictor"],
        "seed": values["train_seed"],
    }
    train = plan.add("train", f"{label} {choices['predictor']}", config, {"calibrate": [calibrate]})
    return {"calibrate": calibrate, "train": train}


def _break_even(
    plan: Plan, values: Mapping[str, Any], choices: Mapping[str, str], cell: Cell, measured: Mapping[str, str]
) -> None:
    """Lay out, once for all cells that it is the same for, when loading KV beats computing it."""
    engine, model = cell.engine, cell.model
    setup = {
        "tensor_parallel": engine.tensor_parallel,
        "block_tokens": engine.block_tokens,
        "block_bytes": block_bytes(model, engine.block_tokens),
        "rank_share": model.kv_rank_share(engine.tensor_parallel),
        "pieces_per_block": engine.kv_pieces(model, engine.block_tokens),
        "max_batched_tokens": engine.max_batched_tokens,
        "longest_tokens": cell.max_context_tokens,
        "running_count": min(cell.tau.running_requests, engine.max_running - 1),
        "context_tokens": cell.tau.context_tokens,
    }
    names = {group: str(values[group].get("name", choices[group])) for group in BREAK_EVEN_NAMES}
    label = " ".join(names.values())
    plan.add("break_even", label, {"names": names, "setup": setup}, {s: [key] for s, key in measured.items()})


def _trace(plan: Plan, values: Mapping[str, Any], choices: Mapping[str, str], cell: Cell) -> str:
    is_drawn = cell.trace.file() is None  # a file is read once; what seeds differ in is drawn by each simulation
    config = {
        "trace": values["trace"],
        "seed": values["seed"] if is_drawn else 0,
        "max_context_tokens": cell.max_context_tokens,
        "checksum": _checksum(plan, "trace.path", cell.trace.file()),
    }
    return plan.add("trace", choices["trace"] + f" seed {values['seed']}" * is_drawn, config, {})


def _checksum(plan: Plan, where: str, path: Path | None) -> str | None:
    """Checksum of a file that a job reads: another content is another job. Raises InputError if there is none."""
    if path is None:
        return None
    if path not in plan.checksums:
        _check_file(where, path)
        plan.checksums[path] = file_checksum(path, where)
    return plan.checksums[path]


def _check_file(where: str, path: Path) -> None:
    folder = data_folder()
    if path.is_file():
        return
    if path.exists():
        what = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"{where}: given {str(path)!r}, which is {what}; expected a file")
    if folder is not None and path.is_relative_to(folder):
        raise InputError(
            f"KVPLAN_DATA: given {str(folder)!r}, which has no {path.relative_to(folder)} ({where}); put it there, or "
            "unset KVPLAN_DATA to run without real traces"
        )
    raise InputError(f"{where}: given {str(path)!r}, but there is no such file")


def _fall_back(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    """Put datasheet figures in the place of kernel tables where their package does not run, and say so."""
    hardware = values["hardware"]
    if build(hardware, "hardware", Hardware).source.runs_here():
        return values
    plan.remark(
        f"hardware={hardware['name']}: its kernel tables need Linux x86-64; datasheet figures stand in, so every "
        "result is marked uncalibrated"
    )
    return values | {"hardware": hardware | {"source": UNCALIBRATED}}


def freeze(plan: Plan, results: Path) -> None:
    """Write the file of each job, once and whole, and a readable index of what each key is."""
    items = [*(item for stage in OUTPUTS for _, item in sorted(plan.items[stage].items())), plan.aggregate]
    for item in items:
        path = results / "items" / item.stage / f"{item.key}.json"
        if not path.exists():
            with replacing(path) as partial:
                partial.write_text(json.dumps(asdict(item), indent=1, sort_keys=True))
    lines = [f"{item.stage}\t{item.key}\t{item.label}" for item in items]
    with replacing(results / "items" / f"{plan.study.name}.tsv") as partial:
        partial.write_text("\n".join(["stage\tkey\twhat", *lines]) + "\n")
