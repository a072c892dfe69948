"""Data-adaptive positional encoding (DAPE).

Shapes in names: B batch, T queries, S keys, N pairs of a query and a key, P pairs of a block, H heads,
F numbers of a pair (H or 2H), W hidden units.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.wrapper import Wrapper
from zoo.recipe.fields import Positive
from zoo.registry import register

SLOPE = 0.01
"""Slope of the hidden layer's activation below 0."""
BLOCK_ELEMENTS = 2**20
"""Most hidden units that are held at a time: 4 MiB, for a processor's cache. The backward pass recomputes
them."""
REFUSED = ("embed", "read", "values", "rotate", "score", "logits", "weights", "value", "output")


@register("dape")
class DAPE(Wrapper):
    """An additive bias is adapted to the content, by a small network over the scores of all heads.

    scores = A + B + MLP([A; B]), with A = q k^T / sqrt(D), in a list with all that the others add, and B the
    bias of another encoding. For each query and key the MLP takes the 2H numbers of all heads to H: W2
    LeakyReLU(W1 [A; B] + b1) + b2, with slope 0.01 below 0. Each layer has its own MLP, and its own instance
    of the wrapped encoding. A pair that B hides stays hidden.

    Options:
        of: an encoding that adds a bias and does nothing else, or `none`: B is 0, and the MLP takes A alone.
            The authors' FIRE in it is `{name: fire, activation: leaky_relu}`.
        hidden: the width of the MLP.

    Scores are computed in float32 and their table is written out: slow, and for short sequences. For decoders
    only, as published. The second version's convolution along the keys is left out: there a score depends on
    whether later tokens have been computed yet, so that decoding with a cache is another function than
    training. Checked against a loop over the formula.
    """

    formula = (
        r"a = A + B + W_2 \operatorname{LeakyReLU}(W_1 [A; B] + c_1) + c_2,"
        r"\qquad A = \frac{q k^\top}{\sqrt{D}}"
    )
    paper = "Zheng et al. 2024 (arXiv:2405.14722)"
    family = "contextual"
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

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        heads, dtype = logits.shape[1], logits.dtype
        input_FBTS = logits.transpose(0, 1)
        if self.of.uses("bias"):
            bias = self.of.bias_table(context, heads).to(dtype)
            logits = logits + bias
            bias = bias.masked_fill(bias.isneginf(), 0)  # in the MLP minus infinity would be NaN
            input_FBTS = torch.cat((input_FBTS, bias.expand_as(logits).transpose(0, 1)))
        # A bias of -1000.4 is -1000 in bf16: the scores stay in float32 under autocast.
        with torch.autocast(logits.device.type, enabled=False):
            change_HN = self._change(input_FBTS.flatten(1))
        return logits + change_HN.view_as(logits.transpose(0, 1)).transpose(0, 1)

    def _change(self, x_FN: Tensor) -> Tensor:
        """The network on the F numbers of each of N pairs: [H,N]."""
        parameters = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
        weights = [parameter.to(x_FN.dtype) for parameter in parameters]
        if torch.compiler.is_compiling():  # the compiler decides which parts are recomputed
            return _network(x_FN, *weights)
        block = max(1, BLOCK_ELEMENTS * (16 if x_FN.is_cuda else 1) // len(self.inner.weight))
        options = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.cat([checkpoint(_network, x, *weights, **options) for x in x_FN.split(block, 1)], 1)


def _network(
    x_FP: Tensor, inner_WF: Tensor, inner_offset_W: Tensor, outer_HW: Tensor, outer_offset_H: Tensor
) -> Tensor:
    """Pairs come last, so that the result is as attention takes it, heads first."""
    units_WP = F.leaky_relu_(torch.addmm(inner_offset_W[:, None], inner_WF, x_FP), SLOPE)
    return torch.addmm(outer_offset_H[:, None], outer_HW, units_WP)
