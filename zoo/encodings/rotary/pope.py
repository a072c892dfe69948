"""Polar coordinate position embedding (PoPE)."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rotation import angles, frequencies
from zoo.recipe.fields import AboveOne
from zoo.registry import register


@register("pope")
class PoPE(Encoding):
    """Content gives each dimension its length and position alone its angle, as of a complex number.

    score = sum_c softplus(q_c) softplus(k_c) cos((i - j) f_c - delta_c) / sqrt(D), with f_c = base^(-c/D) for
    each of the D dimensions and delta_c learned for each head. Queries and keys are twice as wide when they
    are multiplied, values as wide as ever.

    Options:
        base: the slowest dimension turns once in about 2 pi base tokens.
        delta: where delta starts, `zero` or `uniform` from -2 pi to 0; it stays within -2 pi and 0.

    Each layer has its own delta. Checked against x-transformers (PolarEmbedding) and a loop over the formula.
    """

    formula = (
        r"a_{ij} = \frac{1}{\sqrt{D}} \sum_{c=1}^{D}"
        r" \operatorname{softplus}(q_{ic}) \operatorname{softplus}(k_{jc})"
        r" \cos\bigl((i-j) f_c - \delta_c\bigr)"
    )
    paper = "Gopalakrishnan, Csordás, Schmidhuber, Mozer 2025 (arXiv:2509.10534)"
    family = "rotary"
    relative = True
    extrapolates = "yes"
    rotation_is_final = True
    per_layer = True
    after_training = ("base",)

    def __init__(
        self,
        size: Size,
        *,
        base: AboveOne = 10000.0,
        delta: Literal["zero", "uniform"] = "zero",
    ):
        super().__init__(size)
        start = torch.zeros(size.num_heads, size.head_dim)
        self.delta = nn.Parameter(start if delta == "zero" else start.uniform_(-2 * math.pi, 0))
        # D frequencies, where a rotation of pairs has D/2.
        self.register_buffer("frequency", frequencies(2 * size.head_dim, base), persistent=False)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        q_cos, q_sin = context.once(self, context.q_pos, self._cos_sin)
        k_cos, k_sin = context.once(self, context.k_pos, self._cos_sin)
        # float32, under autocast too.
        with torch.autocast(q.device.type, enabled=False):
            q_length, k_length = F.softplus(q.float()), F.softplus(k.float())
            # By the sum of angles: cosines of positions are then the same for all heads.
            delta = self.delta.float().clamp(-2 * math.pi, 0)[:, None]
            along, across = k_length * delta.cos(), k_length * delta.sin()
            turned_q = torch.cat((q_length * q_cos, q_length * q_sin), -1)
            turned_k = torch.cat((along * k_cos - across * k_sin, along * k_sin + across * k_cos), -1)
        return turned_q.to(q.dtype), turned_k.to(k.dtype)

    def _cos_sin(self, pos: Tensor) -> tuple[Tensor, Tensor]:
        """[T,D] or [B,1,T,D]."""
        angle = angles(pos, self.frequency)
        return angle.cos(), angle.sin()
