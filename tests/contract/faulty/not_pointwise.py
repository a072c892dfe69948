import torch

import zoo


@zoo.register("not_pointwise")
class NotPointwise(zoo.Encoding):
    """Declares that it is `fused` and computes its bias for all pairs at once."""

    family = "bias"
    relative = True

    def bias_table(self, context, num_heads):
        pos = context.q_pos[..., :, None] - context.k_pos[..., None, :]
        slope = torch.arange(1, num_heads + 1)[:, None, None]
        return -slope * pos.abs()[..., None, :, :].float()
