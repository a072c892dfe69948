"""A logit without a value in the softmax (attention sink).

Shapes in names: B batch, T queries, S keys, H heads.
"""

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.registry import register


@register("sink")
class Sink(Encoding):
    """A head may attend to nothing: one more logit takes part in the softmax and has no value.

    w_j = exp(z_j) / (exp(s_h) + sum over k of exp(z_k)), with s of each head and layer. The weights of a
    query sum to less than one. Without it heads that have nothing to read put their weight on the first
    token.

    Options:
        initial: where s starts.
        learned: whether s is learned. If not, `initial: 0` is the softmax off by one.

    s is not scaled by `model.logit_scale`, and every query has it, with any window or documents. So with a
    scale of logits it does not go with `fire`, `dpb` and `sandwich`, which leave a number out of all scores.
    Order is not read: combine it with an encoding of positions. The softmax off by one is by Miller
    ("Attention is off by one", 2023). gpt-oss learns s, which starts at N(0, 0.02) in `transformers`. Checked
    against `eager_attention_forward` of `gpt_oss` in `transformers` and a loop over the formula.
    """

    formula = r"w_{ij} = \frac{e^{z_{ij}}}{e^{s_h} + \sum_k e^{z_{ik}}}"
    paper = "OpenAI 2025 (gpt-oss, arXiv:2508.10925)"
    family = "weights"
    relative = True
    reads_positions = False

    def __init__(self, size: Size, *, initial: float = 0.0, learned: bool = True):
        super().__init__(size)
        self.per_layer = learned
        # A learned number takes the place of one that is left out, unless a factor of each query scales that.
        self.needs_offset = not learned or size.logits_scaled
        s = torch.full((size.num_heads,), float(initial))
        if learned:
            self.s = nn.Parameter(s)
        else:
            self.register_buffer("s", s, persistent=False)

    def weights(self, logits: Tensor, context: AttentionContext) -> Tensor:
        s_BHT1 = self.s.to(logits.dtype)[:, None, None].expand(*logits.shape[:-1], 1)
        return torch.cat((logits, s_BHT1), -1).softmax(-1)[..., :-1]
