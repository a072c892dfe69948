"""Counts the padding of the first tokens as tokens while decoding."""

import torch

import zoo


@zoo.register("padding_forgotten_in_cache")
class PaddingForgottenInCache(zoo.Encoding):
    """Counts the padding of the first tokens as tokens while decoding."""

    family = "content"
    relative = True

    def score(self, q, k, span):
        if span.keep is None or span.first == 0:
            return -0.05 * self.distance(span.q_pos, span.k_pos)
        row = torch.arange(span.first, span.first + span.num_queries, device=q.device)
        return -0.05 * self.distance(row, span.k_pos)

    def distance(self, q_pos, k_pos):
        distance = (q_pos[..., :, None] - k_pos[..., None, :]).float().square()
        return distance if distance.dim() == 2 else distance[:, None]
