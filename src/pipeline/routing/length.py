"""Predictors of output length: what is known of a request when it arrives in, expected output tokens out."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from typing_extensions import override

from pipeline.routing.base import Arrival
from pipeline.routing.instances import Floats, Ints
from pipeline.spec import NonNegative, Positive, Sourced, Spec


class LengthState:
    """What a predictor remembers in one simulation; fresh for each (never in the Spec)."""


class LengthPredictor(Spec):
    """Predicts how many tokens a request will put out; stateless itself, `start` makes what it remembers."""

    def start(self, request_id: Ints, output_tokens: Ints, rng: np.random.Generator) -> LengthState:  # noqa: ARG002
        """Fresh memory. The true lengths, (n,) by request, are dropped here: only an oracle may keep them.

        rng: keyed by the seed alone, so that compared routers face the same errors.
        """
        return LengthState()

    def predict(self, arrival: Arrival, state: LengthState) -> float:
        """Expected output tokens, at least 1."""
        raise NotImplementedError

    def observe(self, arrival: Arrival, output_tokens: int, state: LengthState) -> None:
        """Learn from a completed request."""


class Constant(LengthPredictor):
    """The same length for every request: a router that knows nothing of lengths."""

    tokens: Sourced

    @override
    def predict(self, arrival: Arrival, state: LengthState) -> float:
        """The constant, at least 1."""
        return max(self.tokens.value, 1.0)


class ClassTotals(LengthState):
    """Completed requests and their output tokens, by class."""

    def __init__(self) -> None:
        self.count: defaultdict[str, int] = defaultdict(int)
        self.tokens: defaultdict[str, int] = defaultdict(int)


class PerClassMean(LengthPredictor):
    """The mean length of the completed requests of the same class, the prior counting as `prior_count` of them.

    Learns in order of completion, which favours short outputs while long ones are still running.
    """

    prior_tokens: Sourced
    prior_count: Positive

    @override
    def start(self, request_id: Ints, output_tokens: Ints, rng: np.random.Generator) -> ClassTotals:
        """Nothing completed yet."""
        return ClassTotals()

    @override
    def predict(self, arrival: Arrival, state: LengthState) -> float:
        """The running mean of the request's class, at least 1; the prior for a class never seen."""
        assert isinstance(state, ClassTotals)
        tokens = self.prior_count * self.prior_tokens.value + state.tokens[arrival.class_name]
        return max(tokens / (self.prior_count + state.count[arrival.class_name]), 1.0)

    @override
    def observe(self, arrival: Arrival, output_tokens: int, state: LengthState) -> None:
        """Add a completed request to its class."""
        assert isinstance(state, ClassTotals)
        state.count[arrival.class_name] += 1
        state.tokens[arrival.class_name] += output_tokens


class Foretold(LengthState):
    """The oracle's answer for every request."""

    def __init__(self, request_id: Ints, tokens: Floats) -> None:
        self.tokens = dict(zip(request_id.tolist(), tokens.tolist(), strict=True))


class Oracle(LengthPredictor):
    """The true length times a lognormal error of mean 1 and relative standard deviation `error_ratio`, at least 1.

    With error e: factor = exp(s z - s^2 / 2), s^2 = ln(1 + e^2), z standard normal. 0 is the truth; not deployable.
    """

    error_ratio: NonNegative

    @override
    def start(self, request_id: Ints, output_tokens: Ints, rng: np.random.Generator) -> Foretold:
        """Draw every request's error at once: it depends on its place in the trace, not on the order of events."""
        spread = np.sqrt(np.log1p(self.error_ratio**2))
        factor = np.exp(spread * rng.standard_normal(output_tokens.size) - spread**2 / 2)
        return Foretold(request_id, np.maximum(output_tokens * factor, 1.0))

    @override
    def predict(self, arrival: Arrival, state: LengthState) -> float:
        """The request's length as foretold."""
        assert isinstance(state, Foretold)
        return state.tokens[arrival.request_id]
