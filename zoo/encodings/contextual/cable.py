"""Context-aware biases (CABLE)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, Span
from zoo.encodings.registry import register


@register("cable")
class CABLE(Encoding):
    """Distance is the sum of the steps between two tokens, each as long as its token says, in each head.

    score = -g_i |S_i - S_j| with S_t = s_1 + ... + s_t, s_t = softplus(w_s . x_t + b_s) and
    g_t = softplus(w_g . x_t + b_g), where x_t is the input of the attention layer; added after the scaling
    by 1/sqrt(D). Each layer has its own weights.

    Options:
        weighted: whether each query scales its row by g_i. Without it, g = 1, the method is the paper's
            CABLE_NW.
        step: what makes a step positive, `softplus` as in the authors' code or `relu`, under which a token
            may take up no room at all.

    w is drawn from N(0, 0.02), b starts at 0. Steps, gates and sums are computed in float32. Order is known
    from the steps alone: positions are not read. An encoder takes the absolute difference, which tells no
    direction. The authors' code (github.com/axiomlab/Cable) does not divide its products by sqrt(D); here
    they are divided, as everywhere in the zoo. Checked against a loop over the formula and, with constant
    steps, ALiBi.
    """

    paper = "Veisi, Amirzadeh, Mansourian 2025 (arXiv:2503.08067)"
    family = "contextual"
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, weighted: bool = True, step: Literal["softplus", "relu"] = "softplus"):
        super().__init__(size)
        self.weighted = weighted
        self.positive = F.softplus if step == "softplus" else F.relu
        self.steps = nn.Linear(size.d_model, size.num_heads)
        self.gates = nn.Linear(size.d_model, size.num_heads) if weighted else None
        for linear in (self.steps, self.gates):
            if linear is not None:
                nn.init.normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)

    def read(self, x: Tensor) -> Tensor:
        """The step of each token and head, and then its gate, [B,T,H] or [B,T,2H], in float32."""
        # In bf16 every step would be off by up to 0.4 %, and the error of a sum grows with its length.
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            steps = self.positive(F.linear(x, self.steps.weight.float(), self.steps.bias.float()))
            if self.gates is None:
                return steps
            gates = F.softplus(F.linear(x, self.gates.weight.float(), self.gates.bias.float()))
            return torch.cat((steps, gates), -1)

    def score(self, q: Tensor, k: Tensor, span: Span) -> Tensor:
        read = span.read if span.keep is None else span.read * span.keep[..., None]
        read = read.transpose(1, 2)
        rows = slice(span.first, span.first + span.num_queries)
        heads = self.size.num_heads
        place = read[:, :heads].cumsum(-1)
        distance = (place[..., rows, None] - place[..., None, :]).abs()
        return -distance if self.gates is None else -read[:, heads:, rows, None] * distance
