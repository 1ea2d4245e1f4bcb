"""Published figures beside ours: what each claims, how ours is found, and whether it holds.

Arithmetic is computed from shapes and price lists. Anything that needs a simulation is read from the study that runs
it, and "cannot be tested" elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pipeline.spec import Count, InputError, NonNegative, Positive, Sourced, Spec
from pipeline.values import Price
from pipeline.warehouse.statements import select_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Finding:
    """Our figure, its 95 % interval and seeds where it comes from simulations; `ours` is None where there is none."""

    ours: float | None
    remark: str
    ci_low: float | None = None
    ci_high: float | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class Known:
    """What evidence is found in: the marts of `study` in the open warehouse `con`, and price lists by name."""

    con: DuckDBPyConnection
    study: str
    prices: Mapping[str, Price]


class Evidence(Spec):
    """How our figure of a claim is found."""

    def find(self, known: Known) -> Finding:
        """Return our figure, or why there is none."""
        raise NotImplementedError


class Blocks(Spec):
    """Blocks that the tiers of one GPU hold."""

    hbm: Count
    dram: int = Field(ge=0)
    ssd: int = Field(ge=0)

    @property
    def total(self) -> int:
        """Blocks over all tiers."""
        return self.hbm + self.dram + self.ssd

    def cost_usd(self, hbm: float, dram: float, ssd: float) -> float:
        """Cost at the given prices of a block in each tier (any common unit)."""
        return self.hbm * hbm + self.dram * dram + self.ssd * ssd

    def __str__(self) -> str:
        """Read as in hbm:dram:ssd."""
        return f"{self.hbm}:{self.dram}:{self.ssd}"


class SessionsRatio(Evidence):
    """Sessions that tiers `of` hold over those that `over` hold: every session takes the same blocks."""

    of: Blocks
    over: Blocks

    def find(self, known: Known) -> Finding:  # noqa: ARG002
        """Return total blocks over total blocks."""
        return Finding(self.of.total / self.over.total, f"blocks {self.of} over {self.over}")


class CostPerSessionRatio(Evidence):
    """Cost per session with tiers `of` over that with tiers `over`, by a price list, HBM's price replaced if given."""

    of: Blocks
    over: Blocks
    price: str
    hbm_usd_per_gb: Sourced | None = None

    def find(self, known: Known) -> Finding:
        """Return the ratio of cost per block held; raise InputError where there is no such price list."""
        if self.price not in known.prices:
            raise InputError(f"claims: price list {self.price!r} is not one of {', '.join(sorted(known.prices))}")
        price = known.prices[self.price]
        hbm = self.hbm_usd_per_gb or price.hbm_usd_per_gb
        usd = (hbm.value, price.dram_usd_per_gb.value, price.ssd_usd_per_gb.value)
        ours = self.of.cost_usd(*usd) / self.of.total / (self.over.cost_usd(*usd) / self.over.total)
        spelt = ", ".join(f"{value:g}" for value in usd)
        return Finding(ours, f"blocks {self.of} over {self.over} at {spelt} USD/GB ({self.price}; HBM: {hbm.source})")


class TokenRate(Evidence):
    """Tokens per second of one request that gets a token every so many milliseconds."""

    tpot_ms: Positive

    def find(self, known: Known) -> Finding:  # noqa: ARG002
        """Return the reciprocal."""
        return Finding(1e3 / self.tpot_ms, f"one request at {self.tpot_ms:g} ms per token")


class RouterGain(Evidence):
    """SLO attainment of `routing` less that of `reference`, mean over traces, paired by seed, in one study."""

    study: str
    routing: str
    reference: str
    min_traces: Count

    def find(self, known: Known) -> Finding:
        """Return the mean gain and its interval across seeds; nothing where cells, traces or seeds are too few."""
        if known.study != self.study:
            return Finding(None, f"needs study {self.study}")
        query = {"study": self.study, "routing": self.routing, "reference": self.reference}
        rows = known.con.execute(select_of("claim_router_gain"), query).fetchall()
        traces, seeds, gain, half_width = rows[0]
        if traces < self.min_traces or seeds < 2:
            return Finding(None, f"{traces} trace(s) and {seeds} common seed(s); {self.min_traces} and 2 are needed")
        return Finding(gain, f"{traces} traces", gain - half_width, gain + half_width, seeds)


class Sensitivity(Spec):
    """A variation of ours on a published figure, shown beside it: what the claim owes to an assumption."""

    claim_id: str
    statement: str
    evidence: Evidence


class Claim(Spec):
    """One published figure: it holds within `tolerance` (relative) or, where given, between two bounds."""

    claim_id: str
    kind: Literal["arithmetic", "theory", "empirical"]
    statement: str
    published: float | None = None
    unit: str
    tolerance: NonNegative | None = None
    holds_from: float | None = None
    holds_to: float | None = None
    remark: str = ""
    evidence: Evidence | None = None
    sensitivities: tuple[Sensitivity, ...] = ()

    @model_validator(mode="after")
    def _can_be_judged(self) -> Claim:
        by_tolerance = self.published is not None and self.tolerance is not None
        by_bounds = self.holds_from is not None and self.holds_to is not None
        if self.evidence is not None and not (by_tolerance or by_bounds):
            raise ValueError("a claim with evidence needs published and tolerance, or holds_from and holds_to")
        return self

    def verdict(self, ours: float | None) -> str:
        """Say whether our figure bears the claim out."""
        if ours is None:
            return "cannot be tested"
        if self.holds_from is not None and self.holds_to is not None:
            return "holds" if self.holds_from <= ours <= self.holds_to else "differs"
        assert self.published is not None and self.tolerance is not None
        return "holds" if abs(ours - self.published) <= self.tolerance * abs(self.published) else "differs"


class Paper(Spec):
    """A source of claims; `study` is the one that tests what needs simulations."""

    paper: str
    title: str
    source_label: Literal["full text", "second-hand"]
    study: str
    claims: tuple[Claim, ...]


class Claims(Spec):
    """All published figures that results are held against."""

    papers: tuple[Paper, ...]

    @model_validator(mode="after")
    def _ids_are_distinct(self) -> Claims:
        claims = [claim for paper in self.papers for claim in paper.claims]
        ids = [i for c in claims for i in (c.claim_id, *(one.claim_id for one in c.sensitivities))]
        twice = sorted({i for i in ids if ids.count(i) > 1})
        if twice:
            raise ValueError(f"claim_id given twice: {', '.join(twice)}")
        return self

    def rows(self, known: Known) -> list[dict[str, Any]]:
        """Rows of table claims for the known study: one verdict per published figure, variations beside it."""
        return [row for paper in self.papers for claim in paper.claims for row in _rows(known, paper, claim)]


def _rows(known: Known, paper: Paper, claim: Claim) -> list[dict[str, Any]]:
    needed = Finding(None, f"needs study {paper.study}")
    finding = needed if claim.evidence is None else claim.evidence.find(known)
    remarks = (finding.remark, _bounds(claim), claim.remark)
    common = {
        "study": known.study,
        "paper": f"{paper.paper} ({paper.title})",
        "published": claim.published,
        "unit": claim.unit,
        "source_label": paper.source_label,
    }
    own = {
        "claim_id": claim.claim_id,
        "statement": claim.statement,
        "kind": claim.kind,
        "tolerance": claim.tolerance,
        "verdict": claim.verdict(finding.ours),
        "remark": "; ".join(text for text in remarks if text),
    }
    return [
        common | _figures(finding) | own,
        *(common | _variation(one, one.evidence.find(known)) for one in claim.sensitivities),
    ]


def _variation(one: Sensitivity, finding: Finding) -> dict[str, Any]:
    about = {"claim_id": one.claim_id, "statement": one.statement, "kind": "sensitivity", "tolerance": None}
    return about | _figures(finding) | {"verdict": "not judged", "remark": finding.remark}


def _figures(finding: Finding) -> dict[str, Any]:
    return {"ours": finding.ours, "ci_low": finding.ci_low, "ci_high": finding.ci_high, "seeds": finding.seeds}


def _bounds(claim: Claim) -> str:
    if claim.holds_from is None or claim.holds_to is None:
        return ""
    return f"holds from {claim.holds_from:g} to {claim.holds_to:g}"
