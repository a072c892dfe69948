import torch
from torch import nn

import zoo


@zoo.register("limit_too_high")
class LimitTooHigh(zoo.Encoding):
    """Declares a limit above the length of its table."""

    family = "absolute"
    extrapolates = "policy"

    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))

    @property
    def max_length(self):
        return len(self.table) + 1

    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)
