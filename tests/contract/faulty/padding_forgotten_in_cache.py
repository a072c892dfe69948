import torch

import zoo


@zoo.register("padding_forgotten_in_cache")
class PaddingForgottenInCache(zoo.Encoding):
    """Counts the padding of the first tokens as tokens while decoding."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        if context.keep is None or context.query_offset == 0:
            return -0.05 * self.distance(context.q_pos, context.k_pos)
        row = torch.arange(context.query_offset, context.query_offset + context.num_queries, device=q.device)
        return -0.05 * self.distance(row, context.k_pos)

    def distance(self, q_pos, k_pos):
        distance = (q_pos[..., :, None] - k_pos[..., None, :]).float().square()
        return distance if distance.dim() == 2 else distance[:, None]
