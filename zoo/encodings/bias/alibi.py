"""Attention with linear biases (ALiBi)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.bias.sides import Form, hide_other_side, sides
from zoo.registry import register


@register("alibi")
class ALiBi(Encoding):
    """Scores fall linearly with distance, each head at a slope of its own, fixed or learned.

    bias = -m_h |i - j|, added after the scaling by 1/sqrt(D). With H a power of two, m_h = 2^(-8h/H) for
    h = 1..H.

    Options:
        slopes: `official`: where H is not a power of two, those of the next lower one, then every second
            slope of twice that; `geometric`: 2^(-8h/H) all the same; `harmonic`: 1/h for any H, as in
            NAPE (arXiv:2506.16640).
        form: how the heads of an encoder tell their sides apart. `symmetric`: they do not; `one_sided`: half
            of the heads look only back and half only forward, each half with its own set of slopes. Under
            the causal mask of a decoder there is only one side and this changes nothing.
        learned: whether the slopes are learned from there, H numbers that all layers share. Their logarithms
            are the parameters, so that slopes stay above 0. The paper fixes them.

    Checked against the bias that `transformers` builds for BLOOM, `x_transformers` (AlibiPositionalBias) and
    a loop over the formula. The forms for encoders follow the authors' proposals
    (github.com/ofirpress/attention_with_linear_biases, issue 5).
    """

    formula = r"b_{ij} = -m_h\,|i-j|,\qquad m_h = 2^{-8h/H}"
    paper = "Press, Smith, Lewis 2022 (arXiv:2108.12409)"
    family = "bias"
    relative = True
    extrapolates = "yes"
    distance_only = True

    def __init__(
        self,
        size: Size,
        *,
        slopes: Literal["official", "geometric", "harmonic"] = "official",
        form: Form = "symmetric",
        learned: bool = False,
    ):
        super().__init__(size)
        rule = RULES[slopes]
        heads, side = size.num_heads, sides(size, form)
        self.one_sided = bool(side.any())
        slope = [m for m in rule(heads // 2) for _ in range(2)] if self.one_sided else rule(heads)
        self.learned = learned
        if learned:
            self.log_slope = nn.Parameter(torch.tensor(slope).log())
        else:
            self.register_buffer("slope", torch.tensor(slope), persistent=False)
        self.register_buffer("side", side, persistent=False)

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        slope = self.log_slope[head].float().exp() if self.learned else self.slope[head]
        bias = -slope * (q - k).abs()
        return hide_other_side(bias, self.side[head], q - k) if self.one_sided else bias


def geometric_slopes(heads: int) -> list[float]:
    """2^(-8h/H) for h = 1..H."""
    return [2.0 ** (-8 * h / heads) for h in range(1, heads + 1)]


def harmonic_slopes(heads: int) -> list[float]:
    """1/h for h = 1..H."""
    return [1 / h for h in range(1, heads + 1)]


def official_slopes(heads: int) -> list[float]:
    """The authors' slopes, for any number of heads."""
    lower = 2 ** math.floor(math.log2(heads))
    return geometric_slopes(lower) + geometric_slopes(2 * lower)[0::2][: heads - lower]


RULES = {"official": official_slopes, "geometric": geometric_slopes, "harmonic": harmonic_slopes}
