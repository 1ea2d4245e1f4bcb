"""What a report judges by: SLO, prices, references and published claims. Changing any re-runs no simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.schema import Column, Table
from pipeline.spec import OpenRatio, Sourced, Spec
from pipeline.values import Price, Slo
from pipeline.warehouse.claims import Claims

_STUDY = Column("study", "str", "", "study")

REPORT_SLO = Table(
    "report_slo",
    "study: the objective that its requests are judged by",
    (
        _STUDY,
        Column("slo", "str", "", "option"),
        Column("ttft_ms", "float", "ms", "longest TTFT that meets it"),
        Column("tpot_ms", "float", "ms", "longest TPOT that meets it"),
    ),
)
REPORT_PRICE = Table(
    "report_price",
    "study x item: the prices that its costs are computed with",
    (
        _STUDY,
        Column("price", "str", "", "option"),
        Column("item", "str", "", "hbm, dram, ssd or gpu"),
        Column("hardware", "str", "", "hardware option, for item gpu", nullable=True),
        Column("usd", "float", "usd", "in column unit"),
        Column("unit", "str", "", "usd_per_gb (1 GB = 1e9 bytes) or usd_per_hour"),
        Column("source", "str", "", "who published it"),
        Column("as_of", "str", "", "date of the source"),
    ),
)
REPORT_REFERENCE = Table(
    "report_reference",
    "study: what policies and routers are compared with",
    (
        _STUDY,
        Column("eviction", "str", "", "reference policy of the place stage"),
        Column("placement", "str", "", "reference placement of the place stage, where several are compared"),
        Column("prefetch", "str", "", "reference prefetcher of the place stage, where several are compared"),
        Column("routing", "str", "", "reference router of the route stage"),
        Column("equivalence_ratio", "float", "ratio", "relative difference in goodput that counts as none"),
    ),
)
REPORT_TABLES = (REPORT_SLO, REPORT_PRICE, REPORT_REFERENCE)


class Reporting(Spec):
    """What a study is judged by; `prices` are all price lists that claims may name."""

    slo: Slo
    price: Price
    prices: tuple[Price, ...]
    claims: Claims
    reference_eviction: str = "lru"
    reference_placement: str = "tiered"
    reference_prefetch: str = "none"
    reference_routing: str = "round_robin"
    equivalence_ratio: OpenRatio = 0.02

    def rows(self, study: str) -> Mapping[str, list[dict[str, Any]]]:
        """Rows of the report tables by table name."""
        slo = {"slo": self.slo.name, "ttft_ms": self.slo.ttft_ms, "tpot_ms": self.slo.tpot_ms}
        reference = {
            "eviction": self.reference_eviction,
            "placement": self.reference_placement,
            "prefetch": self.reference_prefetch,
            "routing": self.reference_routing,
            "equivalence_ratio": self.equivalence_ratio,
        }
        return {
            REPORT_SLO.name: [{"study": study} | slo],
            REPORT_PRICE.name: [{"study": study} | row for row in _price_rows(self.price)],
            REPORT_REFERENCE.name: [{"study": study} | reference],
        }


def _price_rows(price: Price) -> list[dict[str, Any]]:
    memory = {"hbm": price.hbm_usd_per_gb, "dram": price.dram_usd_per_gb, "ssd": price.ssd_usd_per_gb}
    items: list[tuple[str, str | None, str, Sourced]] = [
        (item, None, "usd_per_gb", sourced) for item, sourced in memory.items()
    ]
    items += [("gpu", hardware, "usd_per_hour", sourced) for hardware, sourced in price.gpu_usd_per_hour.items()]
    return [
        {
            "price": price.name,
            "item": item,
            "hardware": hardware,
            "usd": sourced.value,
            "unit": unit,
            "source": sourced.source,
            "as_of": sourced.as_of,
        }
        for item, hardware, unit, sourced in items
    ]
