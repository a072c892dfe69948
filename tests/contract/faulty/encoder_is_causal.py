import torch

import zoo


@zoo.register("encoder_is_causal")
class EncoderIsCausal(zoo.Encoding):
    """Declares that it is for encoders and masks later keys."""

    family = "bias"
    relative = True

    def bias(self, head, q, k):
        return torch.where(k > q + 0 * head, -torch.inf, -0.1 * (q - k).abs())
