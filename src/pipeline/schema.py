# fmt: off
"""Every table that crosses a stage: its grain and, per column, type, unit and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["str", "int", "float", "bool"]


@dataclass(frozen=True)
class Column:
    """One column: `unit` is spelled as in the name's suffix; `nullable` says whether null may occur."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """One table: `grain` says what a row is."""

    name: str
    grain: str
    columns: tuple[Column, ...]

    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]


def _s(name: str, meaning: str, nullable: bool = False) -> Column:
    return Column(name, "str", "", meaning, nullable)


def _i(name: str, meaning: str, unit: str = "", nullable: bool = False) -> Column:
    return Column(name, "int", unit, meaning, nullable)


def _f(name: str, meaning: str, unit: str = "", nullable: bool = False) -> Column:
    return Column(name, "float", unit, meaning, nullable)


_CELL = _s("cell_id", "the simulation run")
_INSTANCE = _i("instance_id", "serving instance, numbered from 0 over all pools")

STEP_SAMPLES = Table("step_samples", "a measured step or kernel", (
    _s("hardware", "hardware option"), _s("model", "model option"), _i("tensor_parallel", "ranks"),
    _s("source", "silicon_interpolated, measured, datasheet or scaled"),
    _s("operation", "dense, logits, collective, attention_prefill, attention_decode or step"),
    _i("prefill_tokens", "new prompt tokens in the step", "tokens"),
    _i("prefill_cached_tokens", "tokens already in the KV cache of the prefilling request", "tokens"),
    _i("decode_requests", "requests that decode one token"),
    _f("decode_context_mean_tokens", "mean KV length of the decoding requests", "tokens"),
    _f("decode_context_max_tokens", "longest KV length of the decoding requests", "tokens"),
    _f("time_s", "time of the operation in one step, all layers", "s"),
    _i("repeat_count", "measurements behind the time; 0 where none was made here"),
))
CONSTANTS = Table("constants", "hardware x model x constant", (
    _s("hardware", "hardware option"), _s("model", "model option"), _i("tensor_parallel", "ranks"),
    _s("name", "constant"), _f("value", "in the unit of column unit"), _s("unit", "unit of value"),
    _s("source", "who measured or published it"), _s("as_of", "date of the source"),
    _f("fit_error_ratio", "error of the fit, where one was made", "ratio", nullable=True),
))
LINK_CALIBRATION = Table("link_calibration", "hardware x tier pair", (
    _s("hardware", "hardware option"), _s("source_tier", "from"), _s("target_tier", "to"),
    _f("bandwidth_bytes_per_s", "one way", "bytes_per_s"), _f("latency_s", "fixed cost of a transfer", "s"),
    _f("descriptor_s", "cost of each contiguous piece", "s"),
    _f("fit_error_ratio", "error of the fit, where one was made", "ratio", nullable=True),
    _s("source", "who measured or published it"), _s("as_of", "date of the source"),
))
BREAK_EVEN = Table("break_even", "engine setup x tier x sharers of its links x running batch x prefix length", (
    _s("setup_id", "hardware, model, engine and step times that the row is of"),
    _s("hardware", "hardware option"), _s("model", "model option"), _s("predictor", "predictor option"),
    _s("engine", "engine option"), _i("tensor_parallel", "ranks"),
    _i("max_batched_tokens", "most tokens in a step", "tokens"), _i("block_tokens", "tokens of a block", "tokens"),
    _s("tier", "where the prefix lies: dram, ssd or remote"),
    _i("sharer_count", "loads at once over the links, each with its share and with a GPU of its own"),
    _i("running_count", "requests that decode beside the prefill; 0: none"),
    _i("prefix_tokens", "length of the prefix", "tokens"),
    _f("load_s", "time to load it", "s"),
    _f("recompute_s", "time that computing it adds to a prefill, not less than 0", "s"),
    _f("bandwidth_bytes_per_s", "bandwidth of the slowest link on the way", "bytes_per_s"),
    _f("break_even_bytes_per_s", "what that would have to be for both to take as long; null: none is enough",
       "bytes_per_s", nullable=True),
    Column("is_extrapolated", "bool", "", "whether part of recompute_s lies outside the profiled range"),
    _i("load_from_tokens", "least length of the longest range in which loading wins; null: there is none", "tokens",
       nullable=True),
    _i("load_to_tokens", "greatest length of that range; null: there is none", "tokens", nullable=True),
))
PREDICTOR_ACCURACY = Table("predictor_accuracy", "model or replayed run x predictor x operation x split", (
    _s("case", "replayed run whose kernel tables they are; null for step samples", nullable=True),
    _s("hardware", "hardware option"), _s("model", "model option"), _i("tensor_parallel", "ranks"),
    _s("predictor", "predictor option"),
    _s("operation", "as in step_samples; attention_mixed: prefill and decode in one batch"),
    _s("split", "train, held_out, or table (the look-up against its forest)"),
    _i("sample_count", "samples"), _f("mape_ratio", "mean absolute relative error", "ratio"),
    _f("p95_error_ratio", "95th percentile of the absolute relative error", "ratio"),
    _s("against", "what the error is measured against, e.g. silicon_interpolated (not hardware)"),
))
FIDELITY = Table("fidelity", "case x predictor x metric", (
    _s("case", "replayed run"), _s("source", "who measured it"),
    _s("predictor", "predictor option that its step times are from"), _s("metric", "metric and statistic"),
    _f("measured", "in the unit of the metric"), _f("simulated", "in the unit of the metric"),
    _f("error_ratio", "simulated / measured - 1", "ratio"),
    _f("peer_error_ratio", "the best peer's error on the same run", "ratio", nullable=True),
))
CELLS = Table("cells", "a simulation run", (
    _CELL, _s("stage", "place or route"), _s("study", "study"),
    _s("model", "option"), _s("hardware", "option"), _s("predictor", "option"), _s("engine", "option"),
    _s("trace", "option"), _s("tiers", "option"), _s("eviction", "option"), _s("placement", "option"),
    _s("prefetch", "option"), _s("routing", "option"), _s("cluster", "option"), _s("slo", "option"),
    _i("seed", "seed"), _s("axes", "grid axes of the cell (JSON)"), _s("code_digest", "code that ran"),
    _s("config", "resolved configuration (JSON)"),
    _s("calibration_source", "silicon_interpolated or measured; scaled or datasheet (uncalibrated)"),
    Column("is_calibrated", "bool", "", "true where step times rest on measurements of this very hardware"),
    _f("capacity_per_s", "simulated capacity of the reference cell", "per_s", nullable=True),
    _f("offered_per_s", "requests per second asked for by the load", "per_s"),
    _f("arrived_per_s", "requests per second that arrived in the measured window", "per_s", nullable=True),
    _f("measured_s", "length of the measured window of arrivals: closed loop without warm-up and run-out", "s"),
    Column("is_settled", "bool", "", "open loop, or the warm-up before the window is as long as nine in ten sessions"),
    _f("tau_prefill_s_per_token", "the router's constant: instance time per prompt token", "s_per_token"),
    _f("tau_decode_s_per_token", "the router's constant: instance time per output token", "s_per_token"),
    _f("makespan_s", "first arrival to last completion", "s"),
    _f("mean_running_count", "achieved batch: time-weighted mean of running requests"),
    _f("p90_running_count", "achieved batch: 90th percentile over time"),
    _f("extrapolated_time_ratio", "share of step time outside the profiled range", "ratio"),
    _f("zero_reuse_hit_ratio", "lower bound by tokens (always 0, kept beside the result)", "ratio"),
    _f("infinite_cache_hit_ratio", "upper bound by tokens: nothing is ever evicted", "ratio"),
    Column("has_prefixes", "bool", "", "whether the trace says which prefixes are shared; else nothing is found again"),
))
REQUESTS = Table("requests", "cell x request", (
    _CELL, _i("request_id", "request"), _i("session_id", "session"), _s("class", "traffic class"),
    _i("prefill_instance_id", "where the prompt was computed", nullable=True),
    _i("decode_instance_id", "where the output was decoded", nullable=True),
    _f("arrival_s", "at the router", "s"), _i("input_tokens", "prompt", "tokens"),
    _i("output_tokens", "output", "tokens"),
    _i("hbm_tokens", "prompt tokens found in HBM, prefetched ones too", "tokens"),
    _i("dram_tokens", "onboarded from DRAM", "tokens"),
    _i("ssd_tokens", "onboarded from SSD", "tokens"), _i("remote_tokens", "onboarded from remote", "tokens"),
    _i("recomputed_tokens", "prompt tokens computed", "tokens"),
    _s("served_tier", "slowest tier that gave tokens; recompute only if none did"),
    _f("queue_ms", "arrival to first scheduled or first onboarded", "ms", nullable=True),
    _f("onboard_ms", "waiting for onboarding", "ms", nullable=True),
    _f("handoff_ms", "prefill to decode transfer", "ms", nullable=True),
    _f("ttft_ms", "arrival at the router to the first output token", "ms", nullable=True),
    _f("tpot_ms", "(E2EL - TTFT)/(output_tokens - 1); null for one token", "ms", nullable=True),
    _f("max_itl_ms", "largest gap between tokens; null for one token", "ms", nullable=True),
    _f("e2el_ms", "arrival to the last token", "ms", nullable=True),
    _i("preemption_count", "times preempted"),
    _s("status", "completed, or rejected:<reason>"),
    Column("is_measured", "bool", "", "whether it arrived in the measured window: results are judged by these alone"),
))
TIER_USAGE = Table("tier_usage", "cell x instance x tier", (
    _CELL, _INSTANCE, _s("tier", "hbm, dram, ssd or remote"),
    _f("capacity_bytes", "capacity; of a tier that several share, this instance's part, as the other bytes", "bytes"),
    _i("lookup_tokens", "prompt tokens looked up", "tokens"), _i("hit_tokens", "found here", "tokens"),
    _i("evicted_blocks", "evicted", "blocks"),
    _i("dropped_blocks", "not written here: the link was behind, or nothing could be evicted", "blocks"),
    _f("mean_used_bytes", "time-weighted mean", "bytes"),
    _f("peak_used_bytes", "peak", "bytes"),
))
TRANSFERS = Table("transfers", "cell x instance x tier pair x cause", (
    _CELL, _INSTANCE, _s("source_tier", "from"), _s("target_tier", "to"),
    _s("cause", "onboard, prefetch, offload, demote or kv_handoff"),
    _i("block_count", "blocks moved", "blocks"), _f("transferred_bytes", "bytes moved", "bytes"),
    _f("busy_s", "time the link was busy with them", "s"), _f("wait_s", "time they waited for the link", "s"),
))
ROUTING_DECISIONS = Table("routing_decisions", "cell x request x role", (
    _CELL, _i("request_id", "request"), _s("role", "prefill, decode or mixed"), _INSTANCE,
    _i("chosen_match_tokens", "prefix held by the chosen instance, as the router believed", "tokens"),
    _i("best_match_tokens", "longest prefix held by any instance, as the router believed", "tokens"),
    _f("estimated_backlog_s", "work ahead at the chosen instance, as the router believed", "s"),
    _f("snapshot_age_ms", "age of the state that the router saw", "ms"),
))
TIMELINE = Table("timeline", "cell x interval x instance", (
    _CELL, _INSTANCE, _f("start_s", "start of the interval", "s"), _f("length_s", "its length", "s"),
    _f("queue_count", "mean waiting requests"), _f("running_count", "mean running requests"),
    _f("kv_used_ratio", "mean share of HBM KV blocks that running requests hold", "ratio"),
    _f("tokens_per_s", "output tokens", "per_s"),
))
TRACE_QUALITY = Table("trace_quality", "trace x seed x reason", (
    _s("trace", "trace option"), _s("path", "file, or generator"), _i("seed", "seed that it was loaded for"),
    _s("reason", "kept, or why dropped or changed"),
    _i("row_count", "rows"), _s("first_rows", "first row numbers (JSON)"),
))
CLAIMS = Table("claims", "a published figure, or a variation of one", (
    _s("study", "study"), _s("claim_id", "as A1"), _s("paper", "where it is published"),
    _s("statement", "what is claimed"),
    _s("kind", "arithmetic, theory or empirical; sensitivity: a variation of ours"),
    _f("published", "in column unit", nullable=True),
    _f("ours", "in column unit", nullable=True), _f("ci_low", "95 % interval", nullable=True),
    _f("ci_high", "95 % interval", nullable=True), _i("seeds", "seeds behind ours", nullable=True),
    _s("unit", "unit"), _f("tolerance", "relative", "ratio", nullable=True),
    _s("verdict", "holds, differs or cannot be tested; not judged: a variation"),
    _s("source_label", "full text or second-hand"),
    _s("remark", "why, where a reason is needed"),
))
PROVENANCE = Table("provenance", "cell x input", (
    _CELL, _s("input", "hardware, link, trace, code or software"), _s("name", "option or package"),
    _s("value", "version, checksum or source"), _s("as_of", "date"),
    _s("measured_by", "us, vendor, paper or community"),
))

TABLES = {table.name: table for table in (
    STEP_SAMPLES, CONSTANTS, LINK_CALIBRATION, BREAK_EVEN, PREDICTOR_ACCURACY, FIDELITY, CELLS, REQUESTS, TIER_USAGE,
    TRANSFERS, ROUTING_DECISIONS, TIMELINE, TRACE_QUALITY, CLAIMS, PROVENANCE,
)}

SIMULATED = ("cells", "provenance", "requests", "tier_usage", "transfers", "timeline")
"""Tables that a simulation of stage place writes; stage route adds routing_decisions."""
