"""Selective RoPE: a rotation whose angles depend on the tokens passed.

Shapes in names: B batch, N new tokens, S keys, H heads, P pairs of a head's dimensions, K taps.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rotation import frequencies, turn
from zoo.recipe.fields import AboveOne, Positive
from zoo.registry import register


@register("selective_rope")
class SelectiveRoPE(Encoding):
    """Each token turns all later queries and keys on by a step of its own, in each head and pair.

    Pair k of a head turns by the angle f_k (phi_1 + ... + phi_t) at token t, with f_k = base^(-2k/D). phi is
    the input x of the attention layer, divided by its length, through a projection of low rank and a
    convolution over a token and those just before it. With all phi = 1 it is RoPE. Each layer has its own
    weights.

    Options:
        base: of the frequencies. With phi = 1 the slowest pair turns once in about 2 pi base tokens.
        rank: width of the projection on its way to phi.
        kernel: tokens that the convolution sees.

    As in the authors' code, x is divided in H parts, each by its own length. All weights are drawn from
    N(0, 0.02), the taps too, as in the authors' model: at the start phi is near 0. Their code can also gate
    phi, add a bias to it, learn the frequencies and take differences in place of the convolution; this is
    left out. Pairs are (k, k + D/2). Steps, sums and angles are computed in float32. Padding turns nothing,
    and in each document sum and convolution begin anew. Positions are not read. In an encoder, too, the sum
    runs from left to right. While decoding, turned keys and the last sum are kept: a new token turns itself.
    Checked against a loop over the formula and, with phi = 1, RoPE; phi follows the authors' module
    (github.com/timurcarstensen/selective-rope, `modules/rotary.py`).
    """

    formula = (
        r"a_{ij} = \frac{(R_{\theta_i}\, q_i) \cdot (R_{\theta_j}\, k_j)}{\sqrt{D}},"
        r"\qquad \theta_{tk} = \mathrm{base}^{-2k/D} \sum_{s \le t} \phi_{sk},"
        r"\qquad \phi = \operatorname{conv}\bigl(W_2 W_1\, x / \lVert x \rVert\bigr)"
    )
    paper = "Movahedi et al. 2025 (arXiv:2511.17388)"
    family = "contextual"
    weight_matrices = ("down", "up")
    relative = True
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, base: AboveOne = 500_000.0, rank: Positive = 32, kernel: Positive = 4):
        super().__init__(size)
        if size.head_dim % 2:
            raise ValueError(f"selective_rope turns pairs: a head of width {size.head_dim} is not even")
        # The code splits by the heads; a group of heads may not divide the width.
        self.parts = math.gcd(size.d_model, size.num_heads)
        pairs = size.num_heads * size.head_dim // 2
        self.down = nn.Parameter(0.02 * torch.randn(rank, size.d_model))
        self.up = nn.Parameter(0.02 * torch.randn(pairs, rank))
        self.taps = nn.Parameter(0.02 * torch.randn(pairs, 1, kernel))
        self.register_buffer("frequency", frequencies(size.head_dim, base), persistent=False)

    def read(self, x: Tensor) -> Tensor:
        """The low-rank part of phi before the convolution, [B,T,R], in float32."""
        with torch.autocast(x.device.type, enabled=False):
            part = x.float().unflatten(-1, (self.parts, -1))
            part = part * (part.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
            return F.linear(part.flatten(-2), self.down.float())

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        start = context.query_offset
        turned, last = context.rows("turned keys"), context.rows("last sum")
        kept = turned is not None and last is not None and turned.count == start
        first = start if kept else 0
        with torch.autocast(q.device.type, enabled=False):
            sum_BHNP = context.running_sum(self._steps(context, first)).unflatten(
                -1, (-1, len(self.frequency))
            )
            sum_BHNP = sum_BHNP.transpose(1, 2)
            if kept and start:
                sum_BHNP = sum_BHNP + last.all()
            angle_BHNP = sum_BHNP * self.frequency
        cos, sin = angle_BHNP.cos(), angle_BHNP.sin()
        k = turn(k[:, :, first:], cos, sin)
        if kept:
            k = turned.append(k)
            last.replace(sum_BHNP[:, :, -1:])
        own = slice(start - first, start - first + q.shape[2])
        return turn(q, cos[:, :, own], sin[:, :, own]), k

    def _steps(self, context: AttentionContext, first: int) -> Tensor:
        """phi of the keys from row `first` on, [B,N,H*P]."""
        taps_KE = self.taps[:, 0].float().T
        seen = context.features[:, max(0, first - len(taps_KE) + 1) :]
        return context.convolved(F.linear(seen, self.up.float()), taps_KE, first, context.num_keys)
