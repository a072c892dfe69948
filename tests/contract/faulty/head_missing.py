import torch
from torch import nn

import zoo


@zoo.register("head_missing")
class HeadMissing(zoo.Encoding):
    """Its table lacks a head."""

    family = "bias"
    relative = True
    fused = False

    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.ones(size.num_heads))

    def bias_table(self, context, num_heads):
        distance = (context.q_pos[..., :, None] - context.k_pos[..., None, :]).abs().float()
        return -self.slope[1:, None, None] * distance
