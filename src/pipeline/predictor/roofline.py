"""`Roofline`: the fitted physical baseline alone, the control for what a forest adds."""

from __future__ import annotations

from pipeline.predictor.base import Predictor


class Roofline(Predictor):
    """No regressor: every operation is the non-negative sum of physical terms that fits its samples best."""

    def regressor(self, seed: int, input_count: int) -> None:  # noqa: ARG002
        """Give none."""
        return
