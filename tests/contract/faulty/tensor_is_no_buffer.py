import torch

import zoo


@zoo.register("tensor_is_no_buffer")
class TensorIsNoBuffer(zoo.Encoding):
    """Has a tensor that is neither parameter nor buffer and stays on its device."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.slope = torch.arange(1, size.num_heads + 1)

    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs().float()
