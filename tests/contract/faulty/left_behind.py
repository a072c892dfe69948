"""A tensor that is neither parameter nor buffer: on another device it is missing."""

import torch

import zoo


@zoo.register("left_behind")
class LeftBehind(zoo.Encoding):
    """A tensor that is neither parameter nor buffer: on another device it is missing."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.slope = torch.arange(1, size.num_heads + 1)

    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs().float()
