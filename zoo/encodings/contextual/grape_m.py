"""Multiplicative group representational position encoding (GRAPE-M), with phases from the context."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import rotated_width
from zoo.encodings.rotary.rotation import frequencies, turn
from zoo.recipe.fields import AboveOne
from zoo.registry import register

SCALE = 16.0
"""Divisor of the gates' logits, as the authors have it: a gate moves slowly from its start."""
START = math.log(math.expm1(1e-3))
"""The start of b, whose softplus is 1e-3."""


@register("grape_m")
class GrapeM(Encoding):
    """Queries and keys are rotated as by RoPE, at a position that counts each token by a gate of its own.

    Pair k of a head's dimensions turns by the angle P_i f_k with P_i = g_1 + ... + g_(i-1) and
    g_t = sigmoid((w . x_t + b) / 16), where x_t is the input of the attention layer. The D/2 frequencies f
    are learned, from those of RoPE on. Each layer has its own weights.

    Options:
        base: of the frequencies at the start, base^(-2k/D).
        per_head: whether each head has its own gates; as published a layer's heads share them.

    It is GRAPE-M-ctx of the paper, as the authors' code computes it
    (github.com/model-architectures/GRAPE, `llama-mha-grape-m-ctx.py`). The comments there say that g is
    softplus(w . x + b), and b starts where that is 1e-3; the code computes the sigmoid, which starts at 0.39.
    w starts at 0. Gates, sums and angles are computed in float32. The authors turn the other way, which is
    the same with the two numbers of each pair exchanged. Positions are not read. Checked against a loop over
    the formula and, with constant gates, rope; and once against the authors' `CausalSelfAttention`.
    """

    formula = (
        r"a_{ij} = \frac{(R_i q_i) \cdot (R_j k_j)}{\sqrt{D}},"
        r"\qquad R_i \text{ turns pair } k \text{ by } f_k \sum_{t<i} \sigma((w \cdot x_t + c) / 16)"
    )
    paper = "Zhang et al. 2025 (arXiv:2512.07805)"
    family = "contextual"
    encoder = False
    relative = True
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, base: AboveOne = 10000.0, per_head: bool = False):
        super().__init__(size)
        width = rotated_width(size, 1.0)
        self.register_buffer("frequency", frequencies(width, base), persistent=False)
        self.log_factor = nn.Parameter(torch.zeros(width // 2))
        self.gate = nn.Linear(size.d_model, size.num_heads if per_head else 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, START)

    def read(self, x: Tensor) -> Tensor:
        """The gate of each token, [B,T,1] or [B,T,H], in float32."""
        with torch.autocast(x.device.type, enabled=False):
            return (F.linear(x.float(), self.gate.weight.float(), self.gate.bias.float()) / SCALE).sigmoid()

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        position = (context.running_sum(context.features) - context.features).transpose(1, 2)
        angle = position[..., None] * (self.frequency * self.log_factor.float().exp())
        cos, sin = angle.cos(), angle.sin()
        return turn(q, *(context.own(one, 2) for one in (cos, sin))), turn(k, cos, sin)
