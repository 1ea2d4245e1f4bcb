"""Spreading the bits of a number: what draws and tables are keyed by where the same must come out everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Distance of the numbers that a sequence of draws mixes: 2^64 over the golden ratio."""


@njit(cache=True)
def mixed(value: Any) -> Any:
    """Mix a number, or an array of numbers, of 64 bits (SplitMix64: Steele et al., OOPSLA 2014)."""
    x = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
