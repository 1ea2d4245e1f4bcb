"""Describe a trace to its user, before anything is simulated: on the terminal, and as a page."""

import json
from dataclasses import asdict

import _inputs

from pipeline import tables
from pipeline.hardware.spec import Hardware
from pipeline.job import INDENT, Job, run
from pipeline.model import Model
from pipeline.placement.capacity import capacity_blocks, capacity_table, kv_words
from pipeline.placement.tiers import Tiers
from pipeline.spec import build
from pipeline.trace import card, card_page, card_words
from pipeline.trace.base import TraceSource
from pipeline.values import TIERS, Engine


def work(job: Job) -> None:
    source = build(job.config["trace"], "trace", TraceSource)
    tiers = build(job.config["tiers"], "tiers", Tiers)
    engine = build(job.config["engine"], "engine", Engine)
    model = build(job.config["model"], "model", Model)
    hardware = build(job.config["hardware"], "hardware", Hardware)
    trace = source.jittered(_inputs.trace(job.only("trace")), job.config["seed"])
    quality = _inputs.trace_quality(job.only("trace")).to_pylist()
    gpus = hardware.gpus_per_node
    blocks = capacity_blocks(tiers, engine, model, hardware.hbm_bytes.value, gpus, trace.block_tokens)
    sizes = {tier: int(count) for tier, count in zip(TIERS, blocks, strict=True) if count}
    session_tokens = card.session_tokens(trace)
    table = capacity_table(blocks, model, trace.block_tokens, engine.tensor_parallel, gpus, session_tokens)
    capacities = [asdict(capacity) for capacity in table if capacity.block_count]
    samples = tables.read(job.only("calibrate") / "step_samples.parquet").to_pylist()
    profiled_tokens = max(row["prefill_tokens"] + row["prefill_cached_tokens"] for row in samples)
    described = card.describe(trace, sizes, profiled_tokens, source.assumed())
    told = [*map(card_words.capacity, capacities), *kv_words(model, engine, table[0], session_tokens)]
    job.say(f"\n{INDENT}  ".join(["", *card_words.lines(described), *told]))
    with tables.replacing(job.out / "card.html") as partial:
        partial.write_text(card_page.page_of(described, quality, capacities), encoding="utf-8")
    with tables.replacing(job.out / "card.json") as partial:
        partial.write_text(json.dumps(asdict(described), default=lambda array: array.tolist(), indent=1))
    job.say(f"page: {job.out / 'card.html'}")


if __name__ == "__main__":
    run(work)
