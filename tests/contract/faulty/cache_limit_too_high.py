import torch

import zoo


@zoo.register("cache_limit_too_high")
class CacheLimitTooHigh(zoo.Encoding):
    """Declares a limit of cached tokens and is inexact below it."""

    family = "absolute"

    @property
    def max_cached_length(self):
        return 10

    def embed(self, x, pos):
        share = pos.float() / (1 + pos.max())
        wave = torch.linspace(1, 6, self.size.d_model, device=pos.device)
        return x + (share[..., None] * wave).sin().to(x.dtype)
