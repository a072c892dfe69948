"""A parameter that each process moves in its own way."""

import torch
from torch import nn

import zoo


@zoo.register("drifts")
class Drifts(zoo.Encoding):
    """A parameter that each process moves in its own way."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.rand(size.num_heads))

    def bias(self, head, q, k):
        if self.training:
            self.slope.data.mul_(1 + torch.rand(()))
        return -self.slope[head] * (q - k).abs()
