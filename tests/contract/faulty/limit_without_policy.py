import torch
from torch import nn

import zoo


@zoo.register("limit_without_policy")
class LimitWithoutPolicy(zoo.Encoding):
    """Ends at the trained length, and gives no option that chooses otherwise."""

    family = "absolute"

    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))

    @property
    def max_length(self):
        return len(self.table)

    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)
