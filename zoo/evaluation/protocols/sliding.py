"""Windows that overlap, so that every token has a context of nearly the window's length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.errors import InputError, Problem
from zoo.evaluation.protocols.text import WholeText, Windows
from zoo.recipe.rules import stride_gap
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
    """

    explanation = (
        "Windows of this length overlap, and every token is scored once, in the window in which it has "
        "nearly the full length before it: a loss that still falls with the length uses far tokens."
    )

    def validate(self, config: EvaluateConfig, lengths: Sequence[int]) -> None:
        """Raises InputError for a stride larger than a window, which would leave tokens out."""
        fault = stride_gap(config.stride, lengths)
        if fault:
            raise InputError(Problem(fault, key="evaluate.stride"))

    def parameters(self, config: EvaluateConfig) -> dict[str, Any]:
        return {"stride": config.stride}

    def windows(self, config: EvaluateConfig, size: int, length: int) -> Windows:
        stride = config.stride
        # A whole number is in tokens, anything else a fraction of the window.
        return overlapping(
            size, length, stride if isinstance(stride, int) else max(1, round(stride * length))
        )


def overlapping(size: int, length: int, stride: int) -> Windows:
    """Windows over `size` pairs, all of `length`; the last ends with the text, however little it adds."""
    length = min(length, size)
    stride = min(stride, length)
    stops = np.arange(length, size + stride, stride)
    stops = np.minimum(stops, size)
    return Windows(stops - length, stops, np.concatenate([[0], stops[:-1]]))
