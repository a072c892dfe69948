import torch

import zoo


@zoo.register("reads_a_value")
class ReadsAValue(zoo.Encoding):
    """Reads the value of a tensor in the forward pass, which torch.compile cannot follow."""

    family = "absolute"

    def embed(self, x, pos):
        if pos.max().item() > 500:
            pos = pos / 2
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)
