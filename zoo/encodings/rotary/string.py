"""Shifted rotary position embedding (STRING)."""

from typing import Any

from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.rotary.two_ranges import TwoRanges
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("string")
class STRING(TwoRanges):
    """RoPE whose far distances are moved down to the short ones that training has often seen.

    A pair at distance d = i - j is turned by d where d < window, and by d - window + local beyond. The
    trained length L so reaches window - local tokens farther. In an encoder both sides are treated alike.

    For evaluation of a model trained with rope: `zoo evaluate RUN --set model.encoding=string`. The
    options of rope are then those of the training run.

    Options:
        window: S, in tokens. null: a third of the trained length, as in the paper.
        local: W, the distance at which far pairs begin again, in tokens. null: 128, as in the authors' code,
            or half of the window where that is less.

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
        **rope: Any,
    ):
        window = max(1, size.length // 3) if window is None else window
        super().__init__(size, window=window, **rope)
        self.local = min(128, max(1, window // 2)) if local is None else local

    @property
    def gap(self) -> float:
        return self.local - self.window

    def shorten(self, pos: Tensor) -> Tensor:
        return pos
