"""Shifted rotary position embedding (STRING)."""

from typing import Literal

from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.rotary.two_ranges import TwoRanges
from zoo.recipe.fields import AboveOne, Fraction, Positive
from zoo.registry import register


@register("string")
class STRING(TwoRanges):
    """RoPE whose far distances are moved down to the short ones that training has often seen.

    A pair at distance d = i - j is turned by d where d < window, and by d - window + local beyond. The
    trained length L so reaches window - local tokens farther. In an encoder both sides are treated alike.

    For evaluation of a model trained with rope: `zoo evaluate RUN --set model.encoding=string`. Base, layout
    and partial are then those of the training run.

    Options:
        window: S, in tokens. null: a third of the trained length, as in the paper.
        local: W, the distance at which far pairs begin again, in tokens. null: 128, as in the authors' code,
            or half of the window where that is less.
        base: that of rope.
        layout: that of rope, `half` or `interleaved`.
        partial: that of rope.

    Two products of queries and keys are made, three in an encoder: RoPE's, and one of twice the width, which
    is the far one less RoPE's. No fused kernel can do that. The authors' code (github.com/HKUNLP/STRING,
    `string_for_llama.py`) differs in two ways. It multiplies queries and keys by 0.1 ln 2 + 1. Its prefill
    attends twice to the key at distance S, once at each distance; its decoding does not. Here there is no
    factor, and each key counts once. Checked against a loop over the distances and, with local equal to the
    window, against rope.
    """

    formula = (
        r"a_{ij} = \frac{(R_{\rho(i-j)}\, q_i) \cdot k_j}{\sqrt{D}},"
        r"\qquad \rho(d) = d \text{ for } d < S,\ \ d - S + W \text{ beyond}"
    )
    paper = "An et al. 2025 (arXiv:2410.18745)"
    family = "rotary"
    extrapolates = "yes"
    after_training = ("window", "local")
    replaces = ("rope",)

    def __init__(
        self,
        size: Size,
        *,
        window: Positive | None = None,
        local: Positive | None = None,
        base: AboveOne = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        partial: Fraction = 1.0,
    ):
        window = max(1, size.length // 3) if window is None else window
        super().__init__(size, window=window, base=base, layout=layout, partial=partial)
        self.local = min(128, max(1, window // 2)) if local is None else local

    @property
    def gap(self) -> float:
        return self.local - self.window

    def shorten(self, pos: Tensor) -> Tensor:
        return pos
