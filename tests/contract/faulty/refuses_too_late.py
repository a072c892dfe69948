"""It says where a cache ends, and is inexact before."""

import torch

import zoo


@zoo.register("refuses_too_late")
class RefusesTooLate(zoo.Encoding):
    """It says where a cache ends, and is inexact before."""

    family = "absolute"

    @property
    def max_cached_length(self):
        return 10

    def embed(self, x, pos):
        share = pos.float() / (1 + pos.max())
        wave = torch.linspace(1, 6, self.size.d_model, device=pos.device)
        return x + (share[..., None] * wave).sin().to(x.dtype)
