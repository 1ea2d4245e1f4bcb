"""A small folder conf/ of its own: groups of plain values, and one study with a grid in each stage."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import Conf

FILES = {
    "config.yaml": (
        "defaults: [eviction: lru, placement: tiered, prefetch: none, routing: rr, predictor: forest, trace: chat, "
        "tiers: both, slo: tight, "
        "slo@report_slo: tight, price: paper, claims: none, fidelity: runs, _self_]\n"
        "seed: 0\ntrain_seed: 0\nmost_cells: 100\n"
    ),
    "routing/rr.yaml": "kind: rr\n",
    "placement/tiered.yaml": "kind: tiered\n",
    "prefetch/none.yaml": "kind: none\n",
    "predictor/forest.yaml": "kind: forest\ntrees: 9\n",
    "predictor/plain.yaml": "kind: plain\n",
    "eviction/lru.yaml": "kind: lru\n",
    "eviction/s3fifo.yaml": "kind: s3fifo\nsmall_queue_ratio: 0.1\n",
    "tiers/hbm.yaml": "name: hbm\ndram: 0\nhbm: null\nis_fast: false\n",
    "tiers/dram.yaml": "name: dram\ndram: 64\nhbm: null\nis_fast: true\n",
    "tiers/both.yaml": "name: both\ndram: 128\nhbm: null\nis_fast: true\n",
    "trace/chat.yaml": "kind: chat\nsession_count: 10\n",
    "trace/real.yaml": "kind: real\npath: ${data:traces/x.gz}\n",
    "trace/mine.yaml": "kind: mine\npath: ???\n",
    "slo/tight.yaml": "ttft_ms: 1\n",
    "slo/loose.yaml": "ttft_ms: 9\n",
    "price/paper.yaml": "usd: 1\n",
    "claims/none.yaml": "papers: []\n",
    "fidelity/runs.yaml": "cases: null\n",
    "study/s.yaml": """
name: s
about: a study
tuning_seed: 9
place:
  axes: {trace: chat, eviction: "lru,s3fifo", trace.session_count: "10", seed: "range(0,2)"}
  axes_with_data: {trace: "chat,real"}
  reference: {eviction: lru}
  scatter: [eviction]
route:
  axes: {trace: chat, seed: "0"}
  axes_with_data: {}
  reference: {}
  scatter: [trace]
""",
    "study/sizes.yaml": """
name: sizes
about: tiers
tuning_seed: 9
place:
  axes: {tiers: "hbm,dram", seed: 0}
  axes_with_data: {}
  reference: {tiers: both}
  scatter: [tiers]
""",
    "study/replays.yaml": "{name: replays, about: no grid, tuning_seed: 9, replays: [forest]}\n",
}


def conf_in(folder: Path, **changed: str) -> Conf:
    """Write the folder, with files `changed` by their names (`__` for a slash), and return it."""
    files = FILES | {f"{name.replace('__', '/')}.yaml": text for name, text in changed.items()}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return Conf(folder)
