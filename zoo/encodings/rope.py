"""Rotary position embedding (RoPE)."""

from typing import Literal

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size, Span
from zoo.encodings.registry import register


@register("rope")
class RoPE(Encoding):
    """Queries and keys are rotated by their position, so that their product knows the distance alone.

    Pair k of a head's R rotated dimensions turns by the angle p base^(-2k/R) at position p.

    Options:
        base: the slowest pair turns once in about 2 pi base tokens.
        layout: pairs are `half` (k, k + R/2), as in GPT-NeoX and Llama's Hugging Face port, or `interleaved`
            (2k, 2k+1), as in RoFormer, GPT-J and Meta's Llama. A permutation of the head width apart.
        partial: the fraction of the head width that is rotated, its first dimensions; the rest knows no
            place.

    Angles are computed in float32 whatever the precision of the model. Checked against
    `transformers` (LlamaRotaryEmbedding) and a rotation of complex numbers.
    """

    paper = "Su et al. 2021 (arXiv:2104.09864)"
    family = "rotary"
    relative = True
    extrapolates = "no"

    def __init__(
        self,
        size: Size,
        *,
        base: float = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        partial: float = 1.0,
    ):
        super().__init__(size)
        if not 0 < partial <= 1:
            raise ValueError(f"partial is a fraction above 0 and at most 1, not {partial}")
        if base <= 1:
            raise ValueError(f"base must be above 1, not {base}")
        self.width = round(partial * size.head_dim)
        if self.width % 2 or self.width == 0:
            part = f"{partial:g} of a head of width {size.head_dim}"
            raise ValueError(f"rope rotates pairs: {part} is {self.width}, not an even number")
        self.layout = layout
        frequency = base ** -(torch.arange(0, self.width, 2) / self.width)
        self.register_buffer("frequency", frequency, persistent=False)

    def rotate(self, q: Tensor, k: Tensor, span: Span) -> tuple[Tensor, Tensor]:
        return (
            self._turn(q, *span.once(self, span.q_pos, self._angles)),
            self._turn(k, *span.once(self, span.k_pos, self._angles)),
        )

    def _angles(self, pos: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, [T,R/2] or [B,1,T,R/2]."""
        # Autocast would compute the product in bf16, whose integers are exact only to 256.
        with torch.autocast(pos.device.type, enabled=False):
            angle = pos.float()[..., None] * self.frequency
        angle = angle if pos.dim() == 1 else angle[:, None]
        return angle.cos(), angle.sin()

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        turned, rest = x[..., : self.width], x[..., self.width :]
        if self.layout == "half":
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        else:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        turned = turned.to(x.dtype)
        return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), -1)
