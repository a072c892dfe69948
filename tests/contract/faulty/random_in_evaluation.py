import torch

import zoo


@zoo.register("random_in_evaluation")
class RandomInEvaluation(zoo.Encoding):
    """Draws positions in evaluation."""

    family = "position ids"

    def positions(self, ids, batch):
        return ids + torch.randint(100, (1,), device=ids.device)

    def embed(self, x, pos):
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)
