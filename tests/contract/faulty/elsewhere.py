"""It makes a tensor without saying on which device."""

import torch

import zoo


@zoo.register("elsewhere")
class Elsewhere(zoo.Encoding):
    """It makes a tensor without saying on which device."""

    family = "absolute"

    def embed(self, x, pos):
        return x + (pos[..., None] * torch.linspace(0.01, 1, self.size.d_model)).sin().to(x.dtype)
