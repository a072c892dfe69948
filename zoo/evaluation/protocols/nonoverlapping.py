"""Windows side by side: what most papers report."""

from __future__ import annotations

import numpy as np

from zoo.evaluation.protocols.text import WholeText, Windows
from zoo.recipe.sections import EvaluateConfig
from zoo.registry import register


@register.protocol("nonoverlapping")
class Nonoverlapping(WholeText):
    """The validation text in windows of `length` side by side, every token scored once.

    Shows the loss when a long text is cut into windows of this length. Hides the position of the loss in the
    window, above all the early-token effect (Press et al. 2022, arXiv:2108.12409, appendix B): tokens near
    the beginning of a window have little context, and longer windows have fewer of them. The loss therefore
    falls with the length even if a model uses no more context than it was trained on.

    For masked language modelling the targets are the masked tokens, at the same places for every length. They
    do not form a likelihood, so there is no loss per byte or word.
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
