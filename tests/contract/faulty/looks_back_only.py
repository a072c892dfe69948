"""It says that it is for encoders, and closes the future to them."""

import torch

import zoo


@zoo.register("looks_back_only")
class LooksBackOnly(zoo.Encoding):
    """It says that it is for encoders, and closes the future to them."""

    family = "bias"
    relative = True

    def bias(self, head, q, k):
        return torch.where(k > q + 0 * head, -torch.inf, -0.1 * (q - k).abs())
