"""What a recommendation says, in words; the terminal summary and the page speak from here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
ALWAYS_FIXED = ("hardware", "model", "predictor", "engine", "placement", "cluster", "slo", "setting")
NOT_CALIBRATED = "NOT CALIBRATED: step times rest on datasheet figures; trust no absolute figure."
LIGHT_LOAD_RATIO = 0.99  # attainment from which every configuration has room to spare


def percent(ratio: float | None) -> str:
    """A ratio as percent, below ten with a decimal."""
    if ratio is None:
        return "unknown"
    digits = f"{ratio * 100:.0f}" if abs(ratio) >= 0.1 else f"{ratio * 100:.1f}".removesuffix(".0")
    return f"{digits} %"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def byte_text(count_bytes: float) -> str:
    """Bytes in GB or TB (powers of 1000)."""
    if math.isinf(count_bytes):
        return "unlimited"
    return f"{count_bytes / 1e12:.3g} TB" if count_bytes >= 0.9995e12 else f"{count_bytes / 1e9:.3g} GB"


def workload(row: Row, rows: Sequence[Row]) -> str:
    """The trace, and what tells this workload from others among `rows` of the same stage."""
    others = [other for other in rows if other["stage"] == row["stage"]]
    fixed = (*ALWAYS_FIXED, *(("routing",) if row["stage"] == "place" else ("tiers", "eviction")))
    varied = [str(row[key]) for key in fixed if len({other[key] for other in others}) > 1 and row[key]]
    return f"{row['trace']} ({', '.join(varied)})" if varied else str(row["trace"])


def evidence(row: Row) -> str:
    """Whether the seeds suffice for what is recommended."""
    return "evidence suffices" if row["is_shown"] else "not enough evidence"


def choice(row: Row) -> str:
    """What is recommended."""
    if row["stage"] == "route":
        return f"router {row['routing']}"
    sizes = [
        f"{byte_text(row[f'{tier}_bytes'] / max(row['instance_count'] or 1, 1))} {tier.upper()}"
        for tier in ("hbm", "dram", "ssd", "remote")
        if row[f"{tier}_bytes"]
    ]
    each = " each" if (row["instance_count"] or 1) > 1 else ""
    return f"tiers {row['tiers']} ({' + '.join(sizes) or 'sizes not recorded'}{each}), policy {row['eviction']}"


def goodput(row: Row) -> str:
    """The goodput with its interval, and the attainment."""
    interval = _interval(row["goodput_low_per_s"], row["goodput_high_per_s"])
    value = "unknown" if row["goodput_per_s"] is None else f"{row['goodput_per_s']:.3g}/s{interval}"
    return f"goodput {value}, {percent(row['slo_attainment_ratio'])} in SLO"


def _interval(low: float | None, high: float | None) -> str:
    return " (no interval)" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"


def bounds(row: Row) -> str:
    """The hit ratio by tokens, beside what no reuse and an infinite cache would give."""
    zero, infinite = percent(row["zero_reuse_hit_ratio"]).removesuffix(" %"), percent(row["infinite_cache_hit_ratio"])
    return f"hits {percent(row['hit_ratio'])} (bounds {zero} to {infinite})"


def option_finding(row: Row) -> str:
    """What is known of the recommended policy or router against the others."""
    noun = "router" if row["stage"] == "route" else "policy"
    reference = row["reference"]
    if row["option_count"] == 1:
        return f"one {noun}, none to compare"
    if row["option_verdict"] == "better":
        return f"{row['compared']} beats {reference} by {_gain(row)}"
    if row["option_verdict"] != "reference":
        return f"{reference}, the reference {noun}, was not run"
    if row["unclear_count"] == 0:
        known = _listed(
            [(row["equal_count"], f"equal within {percent(row['equivalence_ratio'])}"), (row["worse_count"], "worse")]
        )
        return f"no {noun} beats {reference}: {known}"
    return f"no {noun} beats {reference} beyond its interval"


def _gain(row: Row) -> str:
    base = row["reference_goodput_per_s"]
    if not base:
        return f"{row['difference_per_s']:.3g} requests/s, where {row['reference']} meets the SLO for none"
    low, high = row["difference_low_per_s"] / base * 100, row["difference_high_per_s"] / base * 100
    return f"{row['difference_per_s'] / base * 100:.3g} % [{low:.3g}, {high:.3g}]"


def _listed(parts: Iterable[tuple[int, str]]) -> str:
    return ", ".join(f"{number} {text}" for number, text in parts if number)


def tiers_finding(row: Row) -> str:
    """What is known of the recommended tiers against the others."""
    if row["tiers_verdict"] == "one size":
        return "one tier size, none to compare"
    if row["tiers_verdict"] != "shown":
        return "tier sizes not told apart"
    dearer_count = row["tiers_count"] - 1 - row["cheaper_count"]
    return ", ".join(
        text
        for number, text in ((row["cheaper_count"], "cheaper tiers worse"), (dearer_count, "dearer tiers no better"))
        if number
    )


def caveats(row: Row) -> list[str]:
    """What weakens the answer, loudest first."""
    found = [] if row["is_calibrated"] else [NOT_CALIBRATED]
    if row["outcome_count"] == 1:
        seeds = "one seed" if row["seed_count"] == 1 else f"{row['seed_count']} seeds with one and the same outcome"
        found.append(f"{seeds}: no interval, so no evidence of a difference")
    if (row["least_attainment_ratio"] or 0) >= LIGHT_LOAD_RATIO:
        found.append("load too light to tell options apart: 99 % or more in SLO under each")
    if row["infinite_cache_hit_ratio"] == 0:
        found.append("no block is used twice, or the trace has no prefixes: tiers and policies cannot matter")
    if row["is_one_trace"]:
        found.append("one trace: seeds only shift its arrivals, so intervals are too narrow")
    if not row["is_settled"]:
        found.append("warm-up shorter than the sessions: the load had not settled")
    if row["goodput_per_s"] == 0:
        found.append("nothing meets the SLO at this load")
    return found


def findings(row: Row) -> list[str]:
    """What is recommended, what it gives, and what is known of it against the others."""
    found = [choice(row), goodput(row), option_finding(row)]
    return [*found, tiers_finding(row), bounds(row)] if row["stage"] == "place" else found


def fidelity(row: Row) -> str:
    """How far the replay of a real run is from it."""
    peer = row["peer_mean_absolute_error_ratio"]
    return (
        f"mean absolute error {percent_error(row['mean_absolute_error_ratio'])} over "
        f"{count(row['metric_count'], 'metric')}"
        f"{'' if peer is None else f' (the best peer: {percent_error(peer)})'}; "
        f"worst {row['worst_metric']}, {percent_error(row['worst_error_ratio'])}"
    )


def percent_error(ratio: float) -> str:
    """An error as percent with two decimals."""
    return f"{ratio * 100:.2f} %"
