"""The mean of a validation, over all devices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class ExactMean(Metric):
    """The mean of losses in nats, or of right answers, as a sum and a count in float64.

    NaN where there was nothing. Unlike torchmetrics' own mean it skips no NaN, and unlike its perplexity it
    stays finite on the losses of a failed extrapolation.
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
