"""It takes positions for indices, and fails where they are floats."""

import torch

import zoo


@zoo.register("wants_integers")
class WantsIntegers(zoo.Encoding):
    """It takes positions for indices, and fails where they are floats."""

    family = "bias"
    relative = True

    def __init__(self, size: zoo.Size):
        super().__init__(size)
        self.table = torch.nn.Parameter(torch.randn(8, size.num_heads))

    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7), head]
