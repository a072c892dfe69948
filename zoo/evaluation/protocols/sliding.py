"""Windows that overlap, so that every token has a context of nearly the window's length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.errors import InputError, Problem
from zoo.evaluation.protocols.text import WholeText, Windows
from zoo.recipe.fields import CountOrFraction
from zoo.recipe.sections import EvaluateConfig
from zoo.registry import register


@register.protocol("sliding")
class Sliding(WholeText):
    """Windows of `length` that begin `evaluate.stride` apart; each scores the tokens not scored before.

    Every token is scored once with the same weight: the first window scores all of its tokens, the others
    `stride` each (so the result is not the mean of the windows' means). Beyond the first window a target has
    at least length - stride + 1 tokens of context, which removes most of the early-token effect: if the loss
    still falls with the length, farther tokens are used. With stride 1 every token has the full window. The
    protocol hides the position in the window at which a model breaks, and costs length / stride times as much
    as consecutive windows.

    Args:
        stride: tokens between the beginnings of two windows, or a fraction of the window.
    """

    explanation = (
        "Windows of this length overlap, and every token is scored once, in the window in which it has "
        "nearly the full length before it: a loss that still falls with the length uses far tokens."
    )

    def __init__(self, *, stride: CountOrFraction = 0.5):
        self.stride = stride

    def validate(self, config: EvaluateConfig, lengths: Sequence[int]) -> None:
        """Raises InputError for a stride larger than a window, which would leave tokens out."""
        shortest = min(lengths, default=self.stride)
        if self.stride > shortest:
            fault = (
                f"a stride of {self.stride} tokens would leave tokens out between windows of {shortest}: "
                f"give at most {shortest}, or a fraction of the window such as 0.5"
            )
            raise InputError(Problem(fault, key="evaluate.stride"))

    def parameters(self, config: EvaluateConfig) -> dict[str, Any]:
        return {"stride": self.stride}

    def windows(self, config: EvaluateConfig, size: int, length: int) -> Windows:
        # A whole number is in tokens, anything else a fraction of the window.
        whole = isinstance(self.stride, int)
        return overlapping(size, length, self.stride if whole else max(1, round(self.stride * length)))


def overlapping(size: int, length: int, stride: int) -> Windows:
    """Windows over `size` pairs, all of `length`; the last ends with the text, however little it adds."""
    length = min(length, size)
    stride = min(stride, length)
    stops = np.arange(length, size + stride, stride)
    stops = np.minimum(stops, size)
    return Windows(stops - length, stops, np.concatenate([[0], stops[:-1]]))
