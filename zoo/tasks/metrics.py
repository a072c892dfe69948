"""Exact metrics: sums and counts in float64, added up over all devices before anything is divided."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class TokenLoss(Metric):
    """Mean loss over tokens, from the sum and the count.

    Unlike a perplexity metric that takes a softmax and then its logarithm, it stays finite on the losses that
    failed extrapolation produces. Options are those of `torchmetrics.Metric`.

    >>> metric = TokenLoss()
    >>> metric.update(torch.tensor([1.0, 2.0, 3.0]))
    >>> metric.compute().item()
    2.0
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, loss: Tensor) -> None:
        """Add the losses of tokens, in nats, of any shape."""
        self.total += loss.double().sum()
        self.count += loss.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


class Accuracy(Metric):
    """The fraction of answers that are right. Options are those of `torchmetrics.Metric`.

    >>> metric = Accuracy()
    >>> metric.update(torch.tensor([True, False, True, True]))
    >>> metric.compute().item()
    0.75
    """

    full_state_update = False
    right: Tensor
    count: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("right", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, right: Tensor) -> None:
        """Add answers, True where right."""
        self.right += right.double().sum()
        self.count += right.numel()

    def compute(self) -> Tensor:
        """NaN where there was no answer."""
        return self.right / self.count


def perplexity(loss: float) -> float:
    """exp(loss), infinite where that is beyond a float.

    >>> perplexity(0.0), perplexity(1e4)
    (1.0, inf)
    """
    return math.exp(loss) if loss < 709 else math.inf
