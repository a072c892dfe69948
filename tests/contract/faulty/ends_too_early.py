"""It refuses what is beyond its limit, and more."""

import torch
from torch import nn

import zoo


@zoo.register("ends_too_early")
class EndsTooEarly(zoo.Encoding):
    """It refuses what is beyond its limit, and more."""

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
