"""A bias computed for all pairs at once that says a fused kernel can compute it."""

import torch

import zoo


@zoo.register("not_pointwise")
class NotPointwise(zoo.Encoding):
    """A bias computed for all pairs at once that says a fused kernel can compute it."""

    family = "bias"
    relative = True

    def bias_table(self, span, num_heads):
        pos = span.q_pos[..., :, None] - span.k_pos[..., None, :]
        slope = torch.arange(1, num_heads + 1)[:, None, None]
        return -slope * pos.abs()[..., None, :, :].float()
