"""A random buffer that is not in the state."""

import torch

import zoo


@zoo.register("half_a_state")
class HalfAState(zoo.Encoding):
    """A random buffer that is not in the state."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("table", torch.randn(8, size.num_heads), persistent=False)

    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7).long(), head]
