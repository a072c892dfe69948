"""Dynamic position bias: a small network over distance."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Size
from zoo.encodings.bias.by_distance import ByDistance
from zoo.recipe.fields import Positive
from zoo.registry import register

MOST_LAYERS = 100  # of a network for a single number; built one by one, more would not come to an end


@register("dpb")
class DynamicPositionBias(ByDistance):
    """A small network (MLP) turns the distance into a bias for each head; all layers share it.

    bias = MLP(x)_h with x = sign(i - j) ln(1 + |i - j|), or x = i - j. The MLP has `depth` hidden layers with
    SiLU; the two directions of an encoder differ by the sign of x.

    Options:
        depth: hidden layers.
        width: of a hidden layer; by default a quarter of the model width.
        log_distance: whether distance enters by its logarithm, as in Swin V2, which starts gently and goes
            on gently beyond the trained length; False: as it is, as in CrossFormer and by default in
            `x_transformers`.
        norm: whether each hidden layer has a LayerNorm before its SiLU.

    SiLU, depth and width are those of `x_transformers`; CrossFormer has LayerNorm and ReLU, Swin V2 one
    hidden layer with ReLU and a bounded output. The last layer has no offset, which softmax would not see.
    Weights start as torch draws them. Checked against `x_transformers` (DynamicPositionBias) and a loop over
    the formula.
    """

    formula = r"b_{ij} = \operatorname{MLP}\bigl(\operatorname{sign}(i-j) \ln(1 + |i-j|)\bigr)_h"
    paper = "Wang et al. 2022 (arXiv:2108.00154); Liu et al. 2022 (arXiv:2111.09883)"
    extrapolates = "yes"
    lacks_offset = True

    def __init__(
        self,
        size: Size,
        *,
        depth: Positive = 2,
        width: Positive | None = None,
        log_distance: bool = True,
        norm: bool = False,
    ):
        super().__init__(size)
        width = max(1, size.d_model // 4) if width is None else width
        if depth > MOST_LAYERS:
            raise ValueError(f"depth must be at most {MOST_LAYERS}, not {depth}")
        self.log_distance = log_distance
        widths = [1] + depth * [width]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.hidden) if norm else None
        self.out = nn.Linear(width, size.num_heads, bias=False)

    def at(self, distance: Tensor) -> Tensor:
        x = distance[..., None]
        if self.log_distance:
            x = x.sign() * x.abs().log1p()
        for i, layer in enumerate(self.hidden):
            x = F.linear(x, layer.weight.float(), layer.bias.float())
            if self.norms is not None:
                norm = self.norms[i]
                x = F.layer_norm(x, norm.normalized_shape, norm.weight.float(), norm.bias.float(), norm.eps)
            x = F.silu(x)
        return F.linear(x, self.out.weight.float())
