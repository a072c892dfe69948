"""Sinusoidal absolute positions."""

import math
from typing import Literal

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.recipe.fields import AboveOne
from zoo.registry import register


@register("sinusoidal")
class Sinusoidal(Encoding):
    """Fixed sines and cosines of the position, added to the token vectors.

    PE[p, 2i] = sin(p base^(-2i/E)), PE[p, 2i+1] = cos(p base^(-2i/E)).

    Options:
        base: the wavelengths run from 2 pi to 2 pi base tokens.
        layout: `interleaved` sin and cos as published, or `concatenated`, all sines first. A permutation of
            the model width apart, so equal but for where training starts.
        token_scale: token vectors are multiplied by it before the sum; by default sqrt(E), as published.
            In a list of encodings, the vectors that earlier ones have added are multiplied too.

    Checked against a loop over the formula of the paper, section 3.5.
    """

    formula = (
        r"x_p \to x_p + P_p,"
        r"\qquad P_{p,2i} = \sin\frac{p}{\mathrm{base}^{2i/E}},"
        r"\ P_{p,2i+1} = \cos\frac{p}{\mathrm{base}^{2i/E}}"
    )
    paper = "Vaswani et al. 2017 (arXiv:1706.03762)"
    family = "absolute"
    extrapolates = "no"
    after_training = ("base",)

    def __init__(
        self,
        size: Size,
        *,
        base: AboveOne = 10000.0,
        layout: Literal["interleaved", "concatenated"] = "interleaved",
        token_scale: float | None = None,
    ):
        super().__init__(size)
        if size.d_model % 2:
            raise ValueError(f"sinusoidal needs an even d_model, not {size.d_model}")
        self.layout = layout
        self.token_scale = math.sqrt(size.d_model) if token_scale is None else token_scale
        frequency = base ** -(torch.arange(0, size.d_model, 2) / size.d_model)
        self.register_buffer("frequency", frequency, persistent=False)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        angle = pos.float()[..., None] * self.frequency
        parts = (angle.sin(), angle.cos())
        table = torch.stack(parts, -1).flatten(-2) if self.layout == "interleaved" else torch.cat(parts, -1)
        return x * self.token_scale + table.to(x.dtype)
