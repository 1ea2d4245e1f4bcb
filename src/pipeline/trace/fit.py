"""Fit of the chat generator to half of a trace's sessions, and how like the other half it is."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from pipeline.spec import InputError
from pipeline.trace.chat import ChatTrace
from pipeline.trace.draws import LogNormal
from pipeline.trace.observed import CONTINUES, Observed, halves, observe, shared_prefixes
from pipeline.trace.request_trace import Floats, Ints, RequestTrace
from pipeline.trace.reuse import hit_ratio_curve, reuse_distances

CAPACITY_RATIOS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Capacities of the reuse curve, as shares of the blocks that are looked up at all."""
QUANTILES = (0.1, 0.5, 0.9)
SPREAD = 2.5631031310892007
"""Distance of the 10th and the 90th percentile of a normal distribution, in standard deviations."""
LEAST_S = 1e-3
"""What shorter think times count as."""
DIGITS = 4

Sample = Ints | Floats
Rows = list[dict[str, Any]]


class Fit(NamedTuple):
    """Parameters of the generator, and what they rest on: counts by what is counted."""

    model: ChatTrace
    counts: dict[str, int]


def fit_chat(trace: RequestTrace, seed: int) -> Fit:
    """Estimate ChatTrace's parameters from the half of the sessions that `seed` draws (observed.halves).

    * turns_mean_count: the mean (maximum likelihood for the geometric distribution).
    * Lognormal ones: the sample's median, and the sigma that puts its 10th and 90th percentiles as far apart as they
      are; maximum: the largest value. Tokens count as 1 at least, think times as 1 ms.
    * user_tokens: what later turns add (Observed.new_tokens). Turns that do not continue the one before, as contexts
      that shrink, have no part in it: the generator makes none of these. They are in the counts.
    * first_user_tokens: first prompts less the prefix that they share with another session (observed.shared_prefixes),
      which is up to a block too long where few share it.
    * system_prompt_count: how many equally popular prefixes would make two sessions share one as often as two of the
      trace do; where none does, one of a token. system_prompt_tokens: mean and standard deviation of the logarithm of
      the shared lengths, each prefix counted by its sessions.
    * session_count, sessions_per_s: of the whole trace.
    Raises InputError where no session has a second turn that continues its first.
    """
    half = halves(trace, seed)[0]
    seen = observe(half)
    if not seen.new_tokens.size:
        raise InputError(
            f"trace {trace.name}: given {seen.turns_count.size} sessions to fit to, none with a turn that continues "
            "the one before; expected sessions of several turns"
        )
    count, prefix_tokens, first_tokens, sharing = _prompts(half, seen)
    model = ChatTrace(
        name=f"{trace.name}_fit",
        session_count=int(np.unique(trace.session_id).size),
        sessions_per_s=_sessions_per_s(trace),
        block_tokens=trace.block_tokens,
        too_long="drop",
        system_prompt_count=count,
        system_prompt_tokens=prefix_tokens,
        turns_mean_count=_rounded(float(seen.turns_count.mean())),
        first_user_tokens=_lognormal(first_tokens, 1),
        user_tokens=_lognormal(seen.new_tokens, 1),
        output_tokens=_lognormal(seen.output_tokens, 1),
        think_s=_lognormal(seen.think_s, LEAST_S),
    )
    counts = {
        "sessions": seen.turns_count.size,
        "sessions that share a prefix": sharing,
        **{f"later turns: {kind}": many for kind, many in seen.later.items()},
    }
    return Fit(model, counts)


def _prompts(half: RequestTrace, seen: Observed) -> tuple[int, LogNormal, Sample, int]:
    """Return count and lengths of system prompts, what first prompts hold beyond, and the sessions that share one."""
    shared = shared_prefixes(half)
    sharing = shared.prefix >= 0
    sessions = np.bincount(shared.prefix[sharing], minlength=1)
    pairs = int((sessions * (sessions - 1)).sum())
    if not pairs:
        return 1, LogNormal(median=1, sigma=0, maximum=1), seen.first_prompt_tokens - 1, 0
    lengths = shared.tokens[shared.prefix[sharing]]
    logs = np.log(lengths)
    system = LogNormal(
        median=_rounded(float(np.exp(logs.mean()))), sigma=_rounded(float(logs.std())), maximum=float(lengths.max())
    )
    beyond = seen.first_prompt_tokens.copy()
    beyond[sharing] -= lengths
    return round(sharing.size * (sharing.size - 1) / pairs), system, beyond, int(sharing.sum())


def _lognormal(sample: Sample, least: float) -> LogNormal:
    low, middle, high = np.log(np.quantile(np.maximum(sample, least), QUANTILES))
    return LogNormal(
        median=_rounded(float(np.exp(middle))),
        sigma=_rounded(float(high - low) / SPREAD),
        maximum=_rounded(float(max(sample.max(), least))),
    )


def _sessions_per_s(trace: RequestTrace) -> float:
    """Rate at which sessions start; 1 where all start at once."""
    starts_s = trace.arrival_s[np.unique(trace.session_id, return_index=True)[1]]
    span_s = float(np.ptp(starts_s))
    return _rounded((starts_s.size - 1) / span_s) if span_s else 1.0


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def goodness(trace: RequestTrace, generated: RequestTrace) -> Rows:
    """Compare two traces: rows of measure, statistic, trace, generated, difference (generated - trace).

    Statistics of each sample of `Observed`: its size, mean, 10th, 50th and 90th percentiles, and, as difference alone,
    the Kolmogorov-Smirnov distance of the two samples (that of first prompts is a matter of luck where few prefixes are
    shared: the generator draws their lengths anew). later_turns: the share of each kind. lru_hit_ratio: what LRU
    hits of block look-ups with a capacity of 1 to 100 % of the blocks that a trace's prompts look up. None: not known,
    for want of a sample.
    """
    one, two = observe(trace), observe(generated)
    rows: Rows = []
    for measure in ("turns_count", "first_prompt_tokens", "new_tokens", "output_tokens", "think_s"):
        a, b = getattr(one, measure), getattr(two, measure)
        rows += [_row(measure, name, x, y) for (name, x), (_, y) in zip(_described(a), _described(b), strict=True)]
        distance = ks_distance(a, b) if a.size and b.size else None
        rows.append(_row(measure, "ks_distance") | {"difference": distance})
    totals = [max(sum(seen.later.values()), 1) for seen in (one, two)]
    rows += [_row("later_turns", kind, one.later[kind] / totals[0], two.later[kind] / totals[1]) for kind in one.later]
    curves = zip(CAPACITY_RATIOS, _reuse_curve(trace), _reuse_curve(generated), strict=True)
    return rows + [_row("lru_hit_ratio", f"capacity_ratio_{ratio:g}", x, y) for ratio, x, y in curves]


def ks_distance(one: Sample, two: Sample) -> float:
    """Largest distance between the distribution functions of two samples, neither empty."""
    values = np.concatenate([one, two])
    below = [np.searchsorted(np.sort(sample), values, side="right") / sample.size for sample in (one, two)]
    return float(np.abs(below[0] - below[1]).max())


def _row(measure: str, statistic: str, trace: float | None = None, generated: float | None = None) -> dict[str, Any]:
    difference = None if trace is None or generated is None else generated - trace
    values = {"trace": trace, "generated": generated, "difference": difference}
    return {"measure": measure, "statistic": statistic} | values


def _described(sample: Sample) -> list[tuple[str, float | None]]:
    size = float(sample.size)
    named = [f"p{round(100 * q)}" for q in QUANTILES]
    known = [float(sample.mean()), *np.quantile(sample, QUANTILES).tolist()] if sample.size else [None] * 4
    return [("count", size), *zip(["mean", *named], known, strict=True)]


def _reuse_curve(trace: RequestTrace) -> list[float]:
    distances = reuse_distances(trace)
    blocks = int((distances < 0).sum())
    return hit_ratio_curve(distances, np.array([int(ratio * blocks) for ratio in CAPACITY_RATIOS])).tolist()


def fit_report(trace: RequestTrace, seed: int, date: str) -> tuple[Rows, str]:
    """Fit ChatTrace to half of the sessions and hold it against the rest; return rows and the YAML of an option.

    The rows are those of `goodness`, behind those of what the fit rests on (measure fit, statistic what is counted).
    Generated are as many sessions as the other half has, started as often, in a context as long as the longest
    request of the trace: what outgrows it is dropped and counted in the row `dropped`. date: of the fit, for the
    comment of the option.
    """
    fit, held = fit_chat(trace, seed), halves(trace, seed)[1]
    if not held.request_count:
        raise InputError(
            f"trace {trace.name}: given {fit.model.session_count} sessions, none of which is left to judge by"
        )
    sessions = {"session_count": int(np.unique(held.session_id).size), "sessions_per_s": _sessions_per_s(held)}
    longest = int((trace.input_tokens + trace.output_tokens).max())
    loaded = fit.model.model_copy(update=sessions).load(seed, longest)
    lost = sum(row["row_count"] for row in loaded.quality.to_pylist() if row["reason"].startswith("dropped"))
    rows = [_row("fit", what, float(many)) for what, many in fit.counts.items()]
    rows.append(_row("fit", "dropped: outgrew the longest request", None, float(lost)))
    return rows + goodness(held, loaded.trace), option_text(fit, trace.name, date)


def option_text(fit: Fit, source: str, date: str) -> str:
    """Write the YAML of conf/trace/NAME.yaml, NAME being the model's name, every field given."""
    used, total = fit.counts["sessions"], fit.model.session_count
    left = sum(many for what, many in fit.counts.items() if what.startswith("later") and not what.endswith(CONTINUES))
    lines = [
        f"# Chat fitted to {used} of the {total} sessions of trace {json.dumps(source)}, {date}. source: fitted",
        f"# (user_tokens without {left} turns that do not continue the one before)",
        f"_target_: {_target(fit.model)}",
        *(f"{name}: {_shown(getattr(fit.model, name))}" for name in _fields(fit.model)),
    ]
    return "\n".join(lines) + "\n"


def _fields(model: ChatTrace) -> list[str]:
    first = ["name", "session_count", "sessions_per_s", "block_tokens", "too_long"]
    return first + [name for name in type(model).model_fields if name not in first]


def _target(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _shown(value: Any) -> str:
    if isinstance(value, LogNormal):
        fields = ", ".join(f"{name}: {_shown(number)}" for name, number in value.model_dump().items())
        return f"{{_target_: {_target(value)}, {fields}}}"
    if isinstance(value, float):
        return np.format_float_positional(value, trim="0")  # 1e-05 would be read as text
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)
