"""A table that ends, and nothing said about it."""

import torch
from torch import nn

import zoo


@zoo.register("ends_unsaid")
class EndsUnsaid(zoo.Encoding):
    """A table that ends, and nothing said about it."""

    family = "absolute"

    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))

    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)
