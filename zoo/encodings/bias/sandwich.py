"""The Sandwich bias."""

import torch
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.bias.by_distance import ByDistance
from zoo.encodings.bias.sides import Form, hide_other_side, sides
from zoo.registry import register


@register("sandwich")
class Sandwich(ByDistance):
    """The inner products of sinusoidal positions, weaker from head to head, added to the scores.

    bias = sum over k = 0..dim/2-1 of (cos((i - j) / 10000^(2k/dim)) - 1) / r_h, with r_h = 8h/H for h = 1..H.
    It falls with distance, roughly as a logarithm, and is the same on both sides.

    Options:
        dim: the width of the sinusoidal positions, even; the paper's d-bar.
        form: how the heads of an encoder tell their sides apart. `symmetric`: they do not; `one_sided`: half
            of the heads look only back and half only forward, each half with the r_h of H/2 heads, as in
            ALiBi. It changes nothing in a decoder.

    The paper has no -1: it is the same for all keys of a query, so that softmax does not see it, and without
    it bf16 would spend its digits on the offset dim/2r_h. Checked against a loop over the paper's formula.
    """

    formula = (
        r"b_{ij} = \frac{1}{r_h} \sum_{k=0}^{d/2-1} \Bigl(\cos\frac{i-j}{10000^{2k/d}} - 1\Bigr),"
        r"\qquad r_h = \frac{8h}{H}"
    )
    paper = "Chi, Fan, Rudnicky, Ramadge 2023 (arXiv:2212.10356)"
    extrapolates = "yes"
    lacks_offset = True

    def __init__(self, size: Size, *, dim: int = 128, form: Form = "symmetric"):
        super().__init__(size)
        if dim < 2 or dim % 2:
            raise ValueError(f"dim must be even and at least 2, not {dim}")
        self.register_buffer("frequency", 10000.0 ** -(torch.arange(0, dim, 2) / dim), persistent=False)
        side, heads = sides(size, form), size.num_heads
        self.one_sided = bool(side.any())
        each = 2 if self.one_sided else 1  # heads of one ratio
        ratio = 8 * torch.arange(1, heads // each + 1).repeat_interleave(each) / (heads // each)
        self.register_buffer("ratio", ratio, persistent=False)
        self.register_buffer("side", side, persistent=False)

    def at(self, distance: Tensor) -> Tensor:
        total = ((distance[..., None] * self.frequency).cos() - 1).sum(-1)
        bias = total[..., None] / self.ratio
        return hide_other_side(bias, self.side, distance[..., None]) if self.one_sided else bias
