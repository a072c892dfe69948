import torch
from torch import nn

import zoo


@zoo.register("random_update")
class RandomUpdate(zoo.Encoding):
    """Changes a parameter by a random factor in each process."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.rand(size.num_heads))

    def bias(self, head, q, k):
        if self.training:
            self.slope.data.mul_(1 + torch.rand(()))
        return -self.slope[head] * (q - k).abs()
