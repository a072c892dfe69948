"""Kernelized relative positions (KERPLE)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.bias.sides import Form, hide_other_side, sides
from zoo.registry import register

SMALLEST = 1e-2
"""Where the authors keep the parameters from below; here only the start does."""


@register("kerple")
class KERPLE(Encoding):
    """Scores fall with the logarithm or a power of distance, at rates that each head learns.

    log: bias = -r1 ln(1 + r2 |i - j|) with r1, r2 > 0; power: bias = -r1 |i - j|^r2 with r1 > 0 and
    0 < r2 < 2. All layers share the 2H numbers.

    Options:
        kernel: `log` or `power`.
        form: how the heads of an encoder tell their sides apart. `symmetric`: they do not; `one_sided`: half
            of the heads look only back and half only forward, as in ALiBi. It changes nothing in a decoder.

    The parameters are free numbers: r1 is the softplus of one, r2 the softplus of the other (log) or twice
    its sigmoid (power). The authors instead clamp r1 and r2 to 0.01 and above in place, which no graph sees.
    They start as published: U(0, 2) for r1 of log and r2 of power, U(0, 1) for the others, none below 0.01.
    Published for decoders; in an encoder both sides fall alike, or each head looks to one of them. Checked
    against a loop over the formulas.
    """

    formula = r"b_{ij} = -r_1 \ln(1 + r_2\,|i-j|)\quad \text{or} \quad b_{ij} = -r_1\,|i-j|^{r_2}"
    paper = "Chi, Fan, Ramadge, Rudnicky 2022 (arXiv:2205.09921)"
    family = "bias"
    relative = True
    extrapolates = "yes"
    distance_only = True

    def __init__(self, size: Size, *, kernel: Literal["log", "power"] = "log", form: Form = "symmetric"):
        super().__init__(size)
        self.kernel = kernel
        side = sides(size, form)
        self.one_sided = bool(side.any())
        self.register_buffer("side", side, persistent=False)
        wide, narrow = torch.rand(2, size.num_heads)
        wide, narrow = (2 * wide).clamp(min=SMALLEST), narrow.clamp(min=SMALLEST)
        # The inverses of softplus and of twice the sigmoid.
        if kernel == "log":
            self.free_r1 = nn.Parameter(wide.expm1().log())
            self.free_r2 = nn.Parameter(narrow.expm1().log())
        else:
            self.free_r1 = nn.Parameter(narrow.expm1().log())
            self.free_r2 = nn.Parameter((wide / 2).logit(eps=1e-6))

    def r1(self, head: Tensor) -> Tensor:
        return F.softplus(self.free_r1[head].float())

    def r2(self, head: Tensor) -> Tensor:
        free = self.free_r2[head].float()
        return F.softplus(free) if self.kernel == "log" else 2 * free.sigmoid()

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        distance = (q - k).abs().float()
        if self.kernel == "log":
            bias = -self.r1(head) * (self.r2(head) * distance).log1p()
        else:
            bias = -self.r1(head) * distance ** self.r2(head)
        return hide_other_side(bias, self.side[head], q - k) if self.one_sided else bias
