import torch
from torch import nn

import zoo


@zoo.register("limit_undeclared")
class LimitUndeclared(zoo.Encoding):
    """Has a table of the trained length and declares no limit."""

    family = "absolute"

    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))

    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)
