"""Additive group representational position encoding (GRAPE-A)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.bias.alibi import official_slopes
from zoo.encodings.context import AttentionContext
from zoo.registry import register


@register("grape_a")
class GrapeA(Encoding):
    """Scores fall linearly with distance, at a slope that the query and the key choose, in each head.

    score = -|i - j| m_h s(w_h) (s(v_h . q_i / sqrt(D)) + s(u_h . k_j / sqrt(D))), added after the scaling by
    1/sqrt(D). m_h are ALiBi's slopes, s is the softplus, and u_h and v_h are divided by their lengths. Each
    layer has its own weights.

    It is GRAPE-A-QK of the paper, as the authors' code computes it
    (github.com/model-architectures/GRAPE, `llama-mha-grape-a-querykeygated.py`): ALiBi's slopes and the
    lengths of u and v are in the code and not in the paper. s(w) starts at 1, u and v are drawn from
    N(0, 1/sqrt(D)). The slopes are computed in float32. An encoder takes the absolute distance, which the
    authors do not try. Checked against a loop over the formula and, with constant gates, alibi; and once
    against the authors' `QueryKeyGatedAdditiveBias`.
    """

    formula = (
        r"b_{ij} = -|i-j|\, m_h\, s(\omega_h) \Bigl(s\Bigl(\frac{v_h \cdot q_i}{\sqrt{D}}\Bigr)"
        r" + s\Bigl(\frac{u_h \cdot k_j}{\sqrt{D}}\Bigr)\Bigr),\qquad s(x) = \ln(1 + e^x)"
    )
    paper = "Zhang et al. 2025 (arXiv:2512.07805)"
    family = "contextual"
    relative = True
    per_layer = True

    def __init__(self, size: Size):
        super().__init__(size)
        shape = size.num_heads, size.head_dim
        self.omega = nn.Parameter(torch.full(shape[:1], math.log(math.e - 1)))
        self.u, self.v = (nn.Parameter(torch.randn(shape) * size.head_dim**-0.5) for _ in range(2))
        self.register_buffer("slope", torch.tensor(official_slopes(size.num_heads)), persistent=False)

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            slope_BHTS = self._slope(q, self.v)[..., :, None] + self._slope(k, self.u)[..., None, :]
        return -context.distance().abs() * slope_BHTS

    def _slope(self, x_BHTD: Tensor, direction_HD: Tensor) -> Tensor:
        """The part of the slope that a query or a key chooses, [B,H,T]."""
        unit_HD1 = F.normalize(direction_HD.float(), dim=-1, eps=1e-6)[..., None]
        gate_BHT = F.softplus((x_BHTD.float() @ unit_HD1).squeeze(-1) * self.size.head_dim**-0.5)
        return (self.slope * F.softplus(self.omega.float()))[:, None] * gate_BHT
