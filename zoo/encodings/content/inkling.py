"""The relative bias of Inkling: curves over distance, mixed by the query.

Shapes in names: B batch, T queries, S keys, H heads, R curves, M distances.
"""

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("inkling")
class Inkling(Encoding):
    """Each token mixes learned curves over distance into the bias of its query, in each head.

    bias = (W_h x_i) . c(i - j) for i - j < max_distance and 0 beyond, where x is the input of the attention
    layer, W_h has a row for each curve, and c(d) has the values of the curves at distance d, in tokens. The
    heads of a layer share the curves; each layer has its own W and curves.

    Options:
        curves: the number of curves.
        max_distance: the first distance without a bias, in tokens. In the released model 1024, and the width
            of the window in layers with one.
        offset: whether the weights of the curves have a term that no token chooses, as in `x_transformers`;
            in the released model they have none.

    There is no paper: the model is Inkling of Thinking Machines (2026). Curves are drawn from N(0, 0.02), W
    as torch draws a linear map. Its models also normalise queries and keys, scale scores by 1/D, and mix keys
    and values with those of the tokens before, which are not part of this encoding. Checked against
    `transformers` (InklingRelativeLogits), `x_transformers` (RelativeProjPositionalBias) and a loop over the
    formula.
    """

    formula = (
        r"b_{ij} = \sum_{r=1}^{R} (W_h x_i)_r\, c_r(i-j) \text{ for } 0 \le i - j < M,"
        r"\qquad 0 \text{ beyond}"
    )
    paper = "Thinking Machines 2026 (https://github.com/huggingface/transformers, models/inkling)"
    family = "content"
    encoder = False
    relative = True
    per_layer = True
    integer_positions = True

    def __init__(
        self, size: Size, *, curves: Positive = 16, max_distance: Positive = 1024, offset: bool = False
    ):
        super().__init__(size)
        self.mix = nn.Linear(size.d_model, size.num_heads * curves, bias=offset)
        self.curves = nn.Parameter(0.02 * torch.randn(curves, max_distance))

    def read(self, x: Tensor) -> Tensor:
        """The weights of the curves, of each token and head: [B,T,H,R]."""
        return self.mix(x).unflatten(-1, (self.size.num_heads, -1))

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        mix_BHTR = context.own(context.features).transpose(1, 2)
        # Tokens at the default positions are never further apart than there are keys.
        curves_RM = self.curves[:, : context.num_keys] if context.consecutive else self.curves
        bias_BHTM = mix_BHTR @ curves_RM.to(mix_BHTR.dtype)
        distance = context.distance().long()
        distance = distance if distance.dim() == 4 else distance[None, None]
        last = curves_RM.shape[1] - 1
        bias_BHTS = bias_BHTM.gather(-1, distance.clamp(0, last).expand(*bias_BHTM.shape[:2], -1, -1))
        return bias_BHTS.masked_fill((distance < 0) | (distance > last), 0.0)
