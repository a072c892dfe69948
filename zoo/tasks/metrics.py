"""Exact metrics: sums and counts in float64, added up over all devices before anything is divided."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class ExactMean(Metric):
    """The mean of losses in nats, or of answers that are right or not, from their sum and their count.

    NaN where there was nothing. Other than torchmetrics' own mean it leaves no NaN out, and other than its
    perplexity it stays finite on the losses that failed extrapolation produces. Options are those of
    `torchmetrics.Metric`.

    >>> loss, accuracy = ExactMean(), ExactMean()
    >>> loss.update(torch.tensor([1.0, 2.0, 3.0]))
    >>> accuracy.update(torch.tensor([True, False, True, True]))
    >>> loss.compute().item(), accuracy.compute().item()
    (2.0, 0.75)
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """Add values, of any shape."""
        self.total += values.double().sum()
        self.count += values.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


def perplexity(loss: float) -> float:
    """exp(loss), infinite where that is beyond a float.

    >>> perplexity(0.0), perplexity(1e4)
    (1.0, inf)
    """
    return math.exp(loss) if loss < 709 else math.inf
