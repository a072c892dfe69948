import torch

import zoo


@zoo.register("relative_undeservedly")
class RelativeUndeservedly(zoo.Encoding):
    """Declares that it is relative and embeds positions."""

    family = "absolute"
    relative = True

    def embed(self, x, pos):
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)
