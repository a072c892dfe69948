"""It says that it is relative, and adds something at each place."""

import torch

import zoo


@zoo.register("knows_the_place")
class KnowsThePlace(zoo.Encoding):
    """It says that it is relative, and adds something at each place."""

    family = "absolute"
    relative = True

    def embed(self, x, pos):
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)
