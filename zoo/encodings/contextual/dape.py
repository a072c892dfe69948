"""Data-adaptive positional encoding (DAPE).

Shapes in names: B batch, T queries, S keys, H heads, F numbers of a query and key (H or 2H).
"""

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, Span
from zoo.encodings.pair_network import pair_network
from zoo.encodings.wrapper import Wrapper
from zoo.field_types import Positive
from zoo.registry import register

SLOPE = 0.01
"""Of the hidden layer's activation below 0."""
REFUSED = ("embed", "read", "rotate", "score", "logits", "value")


@register("dape")
class DAPE(Wrapper):
    """An additive bias is adapted to the content, by a small network over the scores of all heads.

    scores = A + B + MLP([A; B]), with A = q k^T / sqrt(D), in a list with all that the others add, and B the
    bias of another encoding. For each query and key the MLP takes the 2H numbers of all heads to H: W2
    LeakyReLU(W1 [A; B] + b1) + b2, with slope 0.01 below 0. Each layer has its own MLP, and its own instance
    of what it wraps.

    Options:
        of: an encoding that adds a bias and does nothing else, or `none`: B is 0, and the MLP takes A alone.
            The authors' FIRE in it is `{name: fire, activation: leaky_relu}`.
        hidden: the width of the MLP.

    Scores are computed in float32 and their table is written out, on a GPU `hidden` times as large in
    between: slow, and for short sequences. For decoders only, as published. The second version's convolution
    along the keys is left out: there a score depends on whether later tokens have been computed yet, so that
    decoding with a cache is another function than training. Checked against a loop over the formula.
    """

    formula = (
        r"a = A + B + W_2 \operatorname{LeakyReLU}(W_1 [A; B] + c_1) + c_2,"
        r"\qquad A = \frac{q k^\top}{\sqrt{D}}"
    )
    paper = "Zheng et al. 2024 (arXiv:2405.14722)"
    family = "contextual"
    learns = "layers * (32 + 97 * heads)"
    encoder = False
    per_layer = True

    def __init__(self, size: Size, *, of: Encoding, hidden: Positive = 32):
        super().__init__(size, of)
        others = [hook for hook in REFUSED if of.uses(hook)]
        if others:
            raise ValueError(
                f"{of.name!r} does more than add a bias (it uses {', '.join(others)}): dape adapts biases "
                f"and `none` only"
            )
        self.per_layer = True
        heads = size.num_heads
        self.inner = nn.Linear(2 * heads if of.uses("bias") else heads, hidden)
        self.outer = nn.Linear(hidden, heads)

    def uses(self, hook: str) -> bool:
        return hook == "logits" or (hook == "positions" and self.of.uses("positions"))

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, span: Span) -> Tensor:
        heads, dtype = logits.shape[1], logits.dtype
        input_FBTS = logits.transpose(0, 1)
        if self.of.uses("bias"):
            bias = self.of.bias_table(span, heads).to(dtype)
            input_FBTS = torch.cat((input_FBTS, bias.expand_as(logits).transpose(0, 1)))
            logits = logits + bias
        # A bias of -1000.4 is -1000 in bf16: the scores stay in float32 under autocast.
        with torch.autocast(logits.device.type, enabled=False):
            inner, outer = ((layer.weight, layer.bias) for layer in (self.inner, self.outer))
            change_HN = pair_network(input_FBTS.flatten(1), inner, SLOPE, outer)
        return logits + change_HN.view_as(logits.transpose(0, 1)).transpose(0, 1)
