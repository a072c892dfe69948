"""Biases that are costly to compute for a pair of tokens, and depend on its distance alone."""

import torch
from torch import Tensor

from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext, per_query_and_key


class ByDistance(Encoding):
    """The base of biases that are computed once for each distance and then looked up for every pair.

    A subclass computes the biases of given distances in `at`. With tokens in a row there are T + S - 1
    distances; at other integer positions, as many as lie between the smallest and the largest.
    """

    family = "bias"
    relative = True
    distance_only = True
    fused = False

    def at(self, distance: Tensor) -> Tensor:
        """The biases of all heads, [..., H], at query position minus key position, [...]; both in float32."""
        raise NotImplementedError

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        # Its products must not be computed in bf16, whose integers are exact only to 256.
        with torch.autocast(q.device.type, enabled=False):
            heads = self.at((q - k).float())
        shape = torch.broadcast_shapes((q - k).shape, head.shape)
        index = head.expand(shape)[..., None]
        return heads.expand(*shape, heads.shape[-1]).gather(-1, index)[..., 0]

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        q, k = per_query_and_key(context.q_pos, context.k_pos)
        # The number of distances must be known in Python, which would break a compiled graph.
        looked_up = not (q.is_floating_point() or context.consecutive or torch.compiler.is_compiling())
        if looked_up:
            distance = q - k
            nearest, farthest = (int(end) for end in distance.aminmax())
            looked_up = farthest - nearest < distance.numel()
        if not looked_up:
            return super().bias_table(context, num_heads)
        line = torch.arange(nearest, farthest + 1, device=q.device)
        head = torch.arange(num_heads, device=q.device)
        table = self.bias(head[:, None], line, torch.zeros_like(line))[:, distance - nearest]
        # [H,T,S], or [H,B,1,T,S].
        return table if table.dim() == 3 else table.squeeze(2).transpose(0, 1)
