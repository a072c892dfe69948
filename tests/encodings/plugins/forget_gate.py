"""The hooks `read` and `score`: what a token's own hidden state says about all that came before it."""

import torch.nn.functional as F
from torch import Tensor, nn

import zoo


@zoo.register("forget_gate")
class ForgetGate(zoo.Encoding):
    """Each token and head has a gate, by which all earlier tokens are forgotten a little.

    score = log f_(j+1) + ... + log f_i with f_t = sigmoid(w_h x_t + b_h).

    Options:
        opening: what b_h starts from; large means that nothing is forgotten.
    """

    paper = "Lin et al. 2025 (arXiv:2503.02130)"
    family = "content"
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True

    def __init__(self, size: zoo.Size, *, opening: float = 2.0):
        super().__init__(size)
        self.gate = nn.Linear(size.d_model, size.num_heads)
        nn.init.constant_(self.gate.bias, opening)

    def read(self, x: Tensor) -> Tensor:
        return F.logsigmoid(self.gate(x)).float()

    def score(self, q: Tensor, k: Tensor, context: zoo.AttentionContext) -> Tensor:
        total = context.features.cumsum(1).transpose(1, 2)
        now = total[:, :, context.query_offset : context.query_offset + context.num_queries]
        return now[..., :, None] - total[..., None, :]
