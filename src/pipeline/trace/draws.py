"""Random draws keyed by (seed, component, session, turn), and the distributions that generators use."""

from __future__ import annotations

import math
import zlib
from statistics import NormalDist
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.spec import NonNegative, Positive, Spec

Floats = NDArray[np.float64]

SLOTS = 8
"""Draws set aside for each turn."""
_CHUNK_TURNS = 64
_SMALLEST, _LARGEST = 2.0**-53, 1 - 2.0**-53
_NORMAL = NormalDist()

Mean = Annotated[float, Field(ge=1, le=1e4)]
"""Mean of a count that is at least 1."""


def uniforms(seed: int, component: str, count: int, session: int = 0) -> Floats:
    """Return `count` uniform draws in (0, 1); a longer call begins with the same draws.

    Philox 4x64, key (component, seed), counter (0, 0, 0, session): streams of sessions and components never overlap.
    """
    key = np.array([zlib.crc32(component.encode()), seed % 2**64], np.uint64)
    counter = np.array([0, 0, 0, session], np.uint64)
    draws = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(count)
    return np.clip(draws, _SMALLEST, _LARGEST)


class Draws:
    """Uniform draws of one session: `at(turn, slot)` depends on nothing but seed, component, session, turn and slot."""

    def __init__(self, seed: int, component: str, session: int) -> None:
        self._key = (seed, component, session)
        self._drawn: list[float] = []

    def at(self, turn: int, slot: int) -> float:
        """Return the draw in (0, 1) of one of the turn's SLOTS."""
        index = turn * SLOTS + slot
        if index >= len(self._drawn):
            seed, component, session = self._key
            count = (index // (SLOTS * _CHUNK_TURNS) + 1) * SLOTS * _CHUNK_TURNS
            self._drawn = uniforms(seed, component, count, session).tolist()
        return self._drawn[index]


class LogNormal(Spec):
    """Lognormal distribution: ln X ~ N(ln median, sigma^2), values above `maximum` set to it."""

    median: Positive
    sigma: NonNegative = Field(le=10)
    maximum: Positive = Field(le=1e9)

    def value(self, draw: float) -> float:
        """Quantile at `draw` in (0, 1)."""
        exponent = math.log(self.median) + self.sigma * _NORMAL.inv_cdf(draw)
        return math.exp(exponent) if exponent < math.log(self.maximum) else self.maximum

    def whole(self, draw: float) -> int:
        """Quantile at `draw` in (0, 1), rounded, at least 1."""
        return max(1, round(self.value(draw)))


def exponential(rate_per_s: float, draw: float) -> float:
    """Gap in seconds between events of a Poisson process of this rate, by a draw in (0, 1)."""
    return -math.log(draw) / rate_per_s


def geometric(mean: float, draw: float) -> int:
    """Quantile at `draw` in (0, 1) of the geometric distribution on 1, 2, ... with this mean."""
    if mean <= 1:
        return 1
    return 1 + int(math.log(1 - draw) / math.log(1 - 1 / mean))


def zipf_cumulative(count: int, exponent: float) -> Floats:
    """Cumulative weights (count,) of items whose popularity falls as 1/rank^exponent; the last is 1."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weights)
    return cumulative / cumulative[-1]


def choose(cumulative: Floats, draw: float) -> int:
    """Choose an item by its cumulative weights and a draw in (0, 1)."""
    return int(np.searchsorted(cumulative, draw, side="right"))
