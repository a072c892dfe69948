"""RoPE with its slowest rotations clipped."""

import math
from typing import Literal

import torch

from zoo.encodings.base import Size
from zoo.encodings.rotary.rope import RoPE
from zoo.recipe.fields import AboveOne, Fraction
from zoo.registry import register


@register("rope_clipped")
class ClippedRoPE(RoPE):
    """RoPE whose slowest pairs, which never complete a turn in training, are slowed to a stop.

    The m-th of the n slowest pairs, m = 0 .. n-1 from fast to slow, turns with its frequency in RoPE times
    (1 + cos(pi m / (n - 1))) / 2.

    Options:
        base: the slowest pair of RoPE turns once in about 2 pi base tokens.
        layout: pairs are `half` (k, k + D/2) or `interleaved` (2k, 2k+1).
        clipped: the fraction of the pairs that is clipped, rounded to an integer n. By default 20 of 64, as
            the authors take it for heads of width 128.
        form: `soft`, the cosine above: the first of the n keeps its frequency and the last stands still, and
            an n of 1 changes nothing; `hard`, all n stand still.

    The authors call it CoPE, which is also the name of contextual position encoding (`cope`). Checked against
    a loop over the formula in the authors' code, and with nothing clipped against RoPE.
    """

    formula = (
        r"f_k \to f_k\,\frac{1 + \cos\bigl(\pi m / (n-1)\bigr)}{2}"
        r"\quad \text{for the } m\text{-th of the } n \text{ slowest pairs}"
    )
    paper = "Li, Ren, Yuille, Wang 2026 (arXiv:2602.05258)"
    extrapolates = "yes"
    after_training = ("base", "clipped", "form")

    def __init__(
        self,
        size: Size,
        *,
        base: AboveOne = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        clipped: Fraction = 0.3125,
        form: Literal["soft", "hard"] = "soft",
    ):
        super().__init__(size, base=base, layout=layout)
        count = round(clipped * len(self.frequency))
        # One step of linspace is its start: the frequency is kept.
        cosine = (1 + torch.linspace(0, math.pi, count).cos()) / 2
        self.frequency[len(self.frequency) - count :] *= cosine if form == "soft" else 0.0
