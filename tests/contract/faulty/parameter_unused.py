import torch
from torch import nn

import zoo


@zoo.register("parameter_unused")
class ParameterUnused(zoo.Encoding):
    """Has a parameter that nothing uses."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.ones(size.num_heads))
        self._idle = nn.Parameter(torch.ones(size.num_heads))

    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs()
