"""Windows side by side: what most papers report."""

from __future__ import annotations

import numpy as np

from zoo.evaluation.protocols.text import WholeText, Windows
from zoo.recipe.sections import EvaluateConfig
from zoo.registry import register


@register.protocol("nonoverlapping")
class Nonoverlapping(WholeText):
    """The validation text in windows of `length` side by side, every token scored once.

    Shows what a model costs when a long text is cut into windows of this length. Hides where in the window
    the loss comes from, and above all the early-token effect (Press et al. 2022, arXiv:2108.12409, appendix
    B): tokens near a window's beginning have little context, and longer windows leave fewer of them. The loss
    of a model that uses no more context than it was trained on still falls with the length.

    For masked language modelling the targets are the hidden tokens, hidden at the same places whatever the
    length; they are no likelihood, and are not given per byte or word.
    """

    explanation = (
        "The text is cut into windows of this length, side by side, and every token is scored once: what "
        "most papers report. Longer windows leave fewer tokens with little context, so the loss may fall "
        "with the length even if nothing far away is used."
    )

    def windows(self, config: EvaluateConfig, size: int, length: int) -> Windows:
        return side_by_side(size, length)


def side_by_side(size: int, length: int) -> Windows:
    """Windows that cover `size` pairs; the last is shorter where the length does not divide them."""
    starts = np.arange(0, size, length)
    return Windows(starts, np.minimum(starts + length, size), starts)
