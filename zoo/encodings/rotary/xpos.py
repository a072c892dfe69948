"""Extrapolatable position embedding (xPos)."""

import math
from typing import Literal

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext, longest_document
from zoo.encodings.rotary.rotation import angles, frequencies, turn
from zoo.recipe.fields import AboveOne, AboveZero
from zoo.registry import register

GAMMA = 0.4
ROOM = 1000.0
"""The largest product of a query and a key that still fits when the multipliers are at their largest."""


@register("xpos")
class XPos(Encoding):
    """RoPE whose products fade with distance, the fast pairs sooner than the slow ones.

    Pair k of D/2 turns by p base^(-2k/D) as in RoPE and is multiplied by z_k^(p/scale_base) in queries, by
    z_k^(-p/scale_base) in keys, with z_k = (2k/D + 0.4) / 1.4: a key i - j tokens back counts
    z_k^((i-j)/scale_base) times. A key ahead would count ever more the farther away it is, so that only a
    decoder can use it.

    Options:
        base: the slowest pair turns once in about 2 pi base tokens.
        layout: pairs are `interleaved` (2k, 2k+1), as published, or `half` (k, k + D/2).
        scale_base: in tokens; over so many the fastest pair fades to 0.29, the next slower ones to more.

    Positions are counted from the middle of the sequence, which cancels in the products and keeps the
    multipliers finite. The products with keys ahead of the query, which are computed and then masked, must
    be finite too. That limits a sequence to 65 scale_base tokens, some 33,400 by default, in float32 and
    bfloat16 and to 3.3 scale_base, some 1,700, in float16; a longer one raises ValueError. Where another
    encoding draws positions that lie farther apart than that, those far from the middle fade no more.

    Checked against x-transformers (RotaryEmbedding with use_xpos), a loop over the formula, and RoPE.
    """

    formula = (
        r"a_{ij} = \frac{1}{\sqrt{D}} \sum_k z_k^{(i-j)/s}\, \bigl(R_{i-j}\, q_i\bigr)_k \cdot k_{jk},"
        r"\qquad z_k = \frac{2k/D + 0.4}{1.4}"
    )
    paper = "Sun et al. 2022 (arXiv:2212.10554)"
    family = "rotary"
    encoder = False
    relative = True
    extrapolates = "yes"
    after_training = ("base", "scale_base")

    def __init__(
        self,
        size: Size,
        *,
        base: AboveOne = 10000.0,
        layout: Literal["interleaved", "half"] = "interleaved",
        scale_base: AboveZero = 512.0,
    ):
        super().__init__(size)
        if size.head_dim % 2:
            raise ValueError(f"xpos rotates pairs: a head of width {size.head_dim} is not an even number")
        self.layout = layout
        width = size.head_dim
        zeta = (torch.arange(0, width, 2, dtype=torch.float32) / width + GAMMA) / (1 + GAMMA)
        self.register_buffer("frequency", frequencies(width, base), persistent=False)
        self.register_buffer("log_scale", zeta.log() / scale_base, persistent=False)
        self.fastest = -math.log(GAMMA / (1 + GAMMA)) / scale_base

    @property
    def max_length(self) -> int:
        return int(room(torch.float32) / self.fastest)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        # The multipliers themselves are float32.
        largest = room(q.dtype if q.dtype == torch.float16 else torch.float32)
        longest = int(largest / self.fastest)
        length, documents = context.num_keys, context.documents
        if length > longest and documents is not None:
            length = longest_document(documents)
        if length > longest:
            raise ValueError(
                f"a sequence of {length} tokens, but beyond {longest} the multipliers of xpos "
                f"overflow {q.dtype}: a larger scale_base fades more slowly and reaches farther"
            )

        def at(pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # A pair of the farthest tokens multiplies both.
            return self._turns(pos, context.k_pos, largest / 2)

        q_cos, q_sin, q_scale = context.once(self, context.q_pos, at)
        k_cos, k_sin, k_scale = context.once(self, context.k_pos, at)
        return (
            turn(q, q_cos * q_scale, q_sin * q_scale, self.layout),
            turn(k, k_cos / k_scale, k_sin / k_scale, self.layout),
        )

    def _turns(self, pos: Tensor, k_pos: Tensor, largest: float) -> tuple[Tensor, Tensor, Tensor]:
        """cos, sin and the multiplier of a query, [T,D/2] or [B,1,T,D/2]."""
        angle = angles(pos, self.frequency)
        # The middle of the keys at hand moves as a sequence is decoded: cached keys are not yet scaled.
        middle = (k_pos.amax(-1, keepdim=True) + k_pos.amin(-1, keepdim=True)) / 2
        power = angles(pos.float() - middle, self.log_scale).clamp(-largest, largest)
        return angle.cos(), angle.sin(), power.exp()


def room(dtype: torch.dtype) -> float:
    """The largest exponent of a multiplier of products whose result must fit."""
    return math.log(torch.finfo(dtype).max / ROOM)
