"""It asks for a number in the midst of a forward pass."""

import torch

import zoo


@zoo.register("breaks_the_graph")
class BreaksTheGraph(zoo.Encoding):
    """It asks for a number in the midst of a forward pass."""

    family = "absolute"

    def embed(self, x, pos):
        if pos.max().item() > 500:
            pos = pos / 2
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)
