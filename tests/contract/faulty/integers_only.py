import torch

import zoo


@zoo.register("integers_only")
class IntegersOnly(zoo.Encoding):
    """Uses positions as indices and fails with floats."""

    family = "bias"
    relative = True

    def __init__(self, size: zoo.Size):
        super().__init__(size)
        self.table = torch.nn.Parameter(torch.randn(8, size.num_heads))

    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7), head]
