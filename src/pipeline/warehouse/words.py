"""What a recommendation says, in words; the terminal summary and the page speak from here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
ALWAYS_FIXED = ("hardware", "model", "predictor", "engine", "cluster", "slo", "setting")
SETUP = ("predictor", "engine", "tensor_parallel", "max_batched_tokens", "block_tokens")
LIGHT_LOAD_RATIO = 0.99  # attainment from which every configuration has room to spare
MOST_DETAILED, MOST_LETTERS = 2, 40  # alternatives of one verdict with a figure each; letters of a list of names
VOID = ("no prefixes", "no reuse", "nothing in SLO", "light load")
"""Conclusions beside which it means nothing how alternatives compare."""


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


def not_calibrated(hardware: str, source: str) -> str:
    """That the step times of `hardware` rest on no measurement of it."""
    return f"NOT CALIBRATED: step times of {hardware} are {source}, not measured; trust no absolute figure"


def workload(row: Row, rows: Sequence[Row]) -> str:
    """The trace, and what tells this workload from others among `rows` of the same stage."""
    others = [other for other in rows if other["stage"] == row["stage"]]
    fixed = (
        *ALWAYS_FIXED,
        *(("routing",) if row["stage"] == "place" else ("tiers", "eviction", "placement", "prefetch")),
    )
    varied = [str(row[key]) for key in fixed if len({other[key] for other in others}) > 1 and row[key]]
    return f"{row['trace']} ({', '.join(varied)})" if varied else str(row["trace"])


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
    return f"tiers {row['tiers']} ({' + '.join(sizes) or 'sizes not recorded'}{each}), policy {row['compared']}"


def goodput(row: Row) -> str:
    """The goodput with its interval, and the attainment."""
    low, high = row["goodput_low_per_s"], row["goodput_high_per_s"]
    interval = " (no interval)" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"
    value = "unknown" if row["goodput_per_s"] is None else f"{row['goodput_per_s']:.3g}/s{interval}"
    return f"goodput {value}, {percent(row['slo_attainment_ratio'])} in SLO"


def bounds(row: Row) -> str:
    """The hit ratio by tokens, beside what no reuse and an infinite cache would give."""
    zero, infinite = percent(row["zero_reuse_hit_ratio"]).removesuffix(" %"), percent(row["infinite_cache_hit_ratio"])
    return f"hits {percent(row['hit_ratio'])} (bounds {zero} to {infinite})"


def tiers_finding(row: Row) -> str:
    """What is known of other tiers against the recommended ones."""
    return standing(row["other_tiers"], row["equivalence_ratio"]) or "one tier size, none to compare"


def option_finding(row: Row) -> str:
    """What is known of other policies or routers against the recommended one."""
    noun = "router" if row["stage"] == "route" else "policy"
    others = list(row["other_options"])
    if not others:
        return f"one {noun}, none to compare"
    parts = []
    if row["option_verdict"] == "better":
        others = [other for other in others if other["alternative"] != row["reference"] and not other["is_runner_up"]]
        parts += [_gain(row), *(_runner_up(other) for other in row["other_options"] if other["is_runner_up"])]
    elif row["option_verdict"] == "no reference":
        parts.append(f"{row['reference']}, the reference {noun}, was not run")
    return "; ".join([*parts, *([standing(others, row["equivalence_ratio"])] if others else [])])


def _gain(row: Row) -> str:
    gain = _against(
        row["reference_goodput_per_s"],
        row["difference_per_s"],
        row["difference_low_per_s"],
        row["difference_high_per_s"],
    )
    return f"{gain} over {row['reference']}"


def _runner_up(other: Row) -> str:
    share = percent(other["gain_share_ratio"])
    return f"{other['alternative']} gets {share} of that gain ({_difference(other)})"


def standing(others: Sequence[Row], equivalence_ratio: float) -> str:
    """How alternatives compare with what is recommended, by name, or counted where many compare alike."""
    labels = {"better": "better", "equal": f"equal within {percent(equivalence_ratio)}", "no better": "no better"}
    groups: dict[str, list[Row]] = {"worse": [], **{label: [] for label in labels.values()}, "not told apart": []}
    for other in others:
        verdict = other["verdict"]
        groups[labels.get(verdict, "worse" if verdict == "worse" else "not told apart")].append(other)
    return ", ".join(_group(label, found) for label, found in groups.items() if found)


def _group(label: str, found: Sequence[Row]) -> str:
    """Alternatives of one verdict: a few each with its difference, more by name alone, many by their number."""
    if label.startswith("equal") or len(found) > MOST_DETAILED:
        names = _listed([other["alternative"] for other in found])
        many = names if len(names) <= MOST_LETTERS else f"{len(found)} others"
        return f"{many} {label}{'' if label.startswith('equal') else _spread(label, found)}"
    return ", ".join(f"{other['alternative']} {label} ({_difference(other)})" for other in found)


def _spread(label: str, found: Sequence[Row]) -> str:
    """The closest of several that are worse; of others what all their intervals lie within."""
    if label == "worse":
        return f" (closest {found[0]['alternative']}, {_difference(found[0])})"
    base = found[0]["recommended_goodput_per_s"]
    ends = [other[f"difference_{end}_per_s"] for other in found for end in ("low", "high")]
    if not base or None in ends:
        return ""
    low, high = (_digits(end * 100 / base, "+") for end in (min(ends), max(ends)))
    return f" (within {low} to {high} %)"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(text for text in (", ".join(names[:-1]), names[-1]) if text)


def _difference(other: Row) -> str:
    """The difference to what is recommended; with its interval, unless it is shown worse."""
    low, high = other["difference_low_per_s"], other["difference_high_per_s"]
    ends = (None, None) if other["verdict"] == "worse" and not other["is_runner_up"] else (low, high)
    return _against(other["recommended_goodput_per_s"], other["difference_per_s"], *ends)


def _against(base: float | None, difference: float | None, low: float | None, high: float | None) -> str:
    """A difference in percent of `base`, or per second where the base has no goodput."""
    if difference is None:
        return "no seed in common"
    unit, scale = (" %", 100 / base) if base else ("/s", 1.0)
    interval = "" if low is None or high is None else f" [{_digits(low * scale)}, {_digits(high * scale)}]"
    return f"{_digits(difference * scale, '+')}{unit}{interval}"


def _digits(value: float, sign: str = "") -> str:
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{round(value, 2) + 0.0:{sign}.2g}"


def doubt(row: Row) -> str:
    """What keeps the answer from being shown; nothing where alternatives speak for themselves."""
    return "not enough evidence" if row["conclusion"] == "not shown" else _flaws(row).get(row["conclusion"], "")


def caveats(row: Row) -> list[str]:
    """What else weakens the answer."""
    moot = ("one outcome", "one trace") if row["conclusion"] in VOID else ()
    return [text for flaw, text in _flaws(row).items() if flaw not in (row["conclusion"], *moot)]


def _flaws(row: Row) -> dict[str, str]:
    """All that weakens the answer, by the conclusion that mart_recommendation draws from it, gravest first."""
    nothing = "so tiers and policies make no difference"
    seeds = "one seed" if row["seed_count"] == 1 else f"{row['seed_count']} seeds with one and the same outcome"
    is_light, is_light_for_options = (
        (row[name] or 0) >= LIGHT_LOAD_RATIO for name in ("least_attainment_ratio", "least_option_attainment_ratio")
    )
    noun = "routers" if row["stage"] == "route" else "policies"
    under_each = f"{percent(LIGHT_LOAD_RATIO)} or more in SLO under each"
    has_reuse = row["stage"] == "route" or row["infinite_cache_hit_ratio"] != 0
    applies = {
        "no prefixes": (not has_reuse and not row["has_prefixes"], f"the trace has no prefixes, {nothing}"),
        "no reuse": (not has_reuse and row["has_prefixes"], f"no block of the trace is used twice, {nothing}"),
        "nothing in SLO": (not row["goodput_per_s"], "nothing meets the SLO at this load"),
        "light load": (
            is_light and bool(row["other_tiers"] or row["other_options"]),
            f"nothing can be told apart at this load ({under_each})",
        ),
        "light for options": (
            is_light_for_options and not is_light and bool(row["other_options"]),
            f"this load tells no {noun} apart ({under_each})",
        ),
        "one outcome": (row["outcome_count"] == 1, f"{seeds}, so no interval and no evidence of a difference"),
        "not settled": (not row["is_settled"], "the load had not settled (warm-up shorter than the sessions)"),
        "one trace": (
            row["is_one_trace"],
            "one trace, whose arrivals are all that seeds shift, so intervals are too narrow",
        ),
    }
    return {flaw: text for flaw, (does_apply, text) in applies.items() if does_apply}


def findings(row: Row) -> list[str]:
    """What is recommended, what it gives, and what is known of it against the others, where that means anything."""
    told = [] if row["conclusion"] in VOID else [option_finding(row)]
    if row["stage"] == "route":
        return [choice(row), goodput(row), *told]
    return [choice(row), goodput(row), *([tiers_finding(row), *told] if told else []), bounds(row)]


def setup(row: Row, rows: Sequence[Row]) -> str:
    """Hardware and model of a verdict on loading, and what tells its engine from others among `rows`."""
    varied = [f"{key} {row[key]}" for key in SETUP if len({other[key] for other in rows}) > 1]
    return ", ".join([f"{row['hardware']} {row['model']}", *varied])


def load_verdicts(rows: Sequence[Row]) -> list[str]:
    """Per tier of one setup: when to load, alone and with the most loads at once that were asked for."""
    told = []
    for tier, found in itertools.groupby(rows, key=lambda row: row["tier"]):
        alone = [row for row in found if row["running_count"] == 0]
        one, most = alone[0], alone[-1]
        shared = "" if most is one else f"; with {most['sharer_count']} loads at once {most['verdict']}"
        told.append(f"{tier.upper()}: {one['verdict']}{shared}")
    return told


def fidelity(row: Row) -> str:
    """How far the replay of a real run is from it, and what was not measured with it; by predictor, if several."""
    peer, metrics = row["peer_mean_absolute_error_ratio"], count(row["metric_count"], "metric")
    derived = "" if row["derived"] is None else f"; derived: {row['derived']}"
    best, *others = row["predictors"]
    errors = [percent_error(one["mean_absolute_error_ratio"]) for one in row["predictors"]]
    found, of_best = f"mean absolute error {errors[0]} over {metrics}", ""
    if others:
        named = ", ".join(f"{one['predictor']} {error}" for one, error in zip(row["predictors"], errors, strict=True))
        found, of_best = f"mean absolute error over {metrics} by predictor: {named}", f" of {best['predictor']}"
    return (
        f"{found}{'' if peer is None else f' (the best peer: {percent_error(peer)})'}; "
        f"worst{of_best} {best['worst_metric']}, {percent_error(best['worst_error_ratio'])}{derived}"
    )


def percent_error(ratio: float) -> str:
    """An error as percent with two decimals."""
    return f"{ratio * 100:.2f} %"
