import torch

import zoo


@zoo.register("random_buffer_not_saved")
class RandomBufferNotSaved(zoo.Encoding):
    """Has a random buffer that is not in the state dict."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("table", torch.randn(8, size.num_heads), persistent=False)

    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7).long(), head]
