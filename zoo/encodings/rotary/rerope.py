"""Rectified rotary position embedding (ReRoPE)."""

import math
from typing import Any

from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.rotary.two_ranges import TwoRanges
from zoo.recipe.fields import Fraction, Positive
from zoo.registry import register


@register("rerope")
class ReRoPE(TwoRanges):
    """RoPE whose distances end at a window: every token beyond it counts as just that far away.

    A pair at distance d = i - j is turned by d where d < window, and by window + leak (d - window) beyond:
    the clipped distance, or the leaky one of Leaky ReRoPE. In an encoder both sides are treated alike.

    For evaluation of a model trained with rope: `zoo evaluate RUN --set model.encoding=rerope`. The
    options of rope are then those of the training run.

    Options:
        window: in tokens. null: a quarter of the trained length, as in the author's best results (1024 of
            4096).
        leak: the slope of the distance beyond the window. 0 clips, 1 is rope; 1/16 in the author's Leaky
            ReRoPE.
        log_scale: whether queries are multiplied by max(1, ln(p + 1) / ln(L)) at position p, L the trained
            length, which keeps attention as sharp among more keys. Part of the author's code.

    Two products of queries and keys are made, three in an encoder: RoPE's, and one of twice the width, which
    is the far one less RoPE's. No fused kernel can do that. Checked against a loop over the
    distances and, with leak 1 or a window as long as the sequence, against rope.
    """

    formula = (
        r"a_{ij} = \frac{(R_{\rho(i-j)}\, q_i) \cdot k_j}{\sqrt{D}},"
        r"\qquad \rho(d) = d \text{ for } d < w,\ \ w + \lambda (d - w) \text{ beyond}"
    )
    paper = "Su 2023 (github.com/bojone/rerope), for the RoPE of Su et al. 2021 (arXiv:2104.09864)"
    family = "rotary"
    relative = False
    extrapolates = "yes"
    after_training = ("window", "leak", "log_scale")
    replaces = ("rope",)

    def __init__(
        self,
        size: Size,
        *,
        window: Positive | None = None,
        leak: Fraction = 0.0,
        log_scale: bool = True,
        **rope: Any,
    ):
        super().__init__(size, window=window, **rope)
        self.leak = leak
        self.log_scale = log_scale
        # The query's own position scales its scores: only without that is distance all that counts.
        self.relative = not log_scale

    @property
    def gap(self) -> float:
        return (1 - self.leak) * self.window

    def shorten(self, pos: Tensor) -> Tensor:
        return pos.float() * self.leak

    def sharpen(self, q: Tensor, pos: Tensor) -> Tensor:
        if not self.log_scale:
            return q
        # log 1 is 0: a model that was trained on single tokens has no length to compare with.
        scale = (pos.float() + 1).clamp(min=1).log() / math.log(max(2, self.size.length))
        scale = scale.clamp(min=1)[..., None]
        return q * (scale if pos.dim() == 1 else scale[:, None])
