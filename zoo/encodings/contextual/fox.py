"""The forget gate of the Forgetting Transformer (FoX).

Shapes in names: B batch, T queries, S keys, H heads.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.registry import register


@register("fox")
class FoX(Encoding):
    """Each token closes a gate, a little or a lot, on all that came before it, in each head.

    score = log f_(j+1) + ... + log f_i with f_t = sigmoid(w_h . x_t + b_h), where x_t is the input of the
    attention layer; added after the scaling by 1/sqrt(D). Each layer has its own gates.

    Options:
        gate_bias: what b_h starts from. 0, as the authors start, halves a key's weight with every token;
            5, as x-transformers does, forgets next to nothing.
        scaled: whether the sum is divided by sqrt(D) too, so that a gate weighs that much less. As published
            it is not. The authors of PaTH do so in PaTH-FoX, which is `[path, {name: fox, scaled: true}]`;
            `[path, fox]` adds the gates as they are.

    w is drawn from N(0, 0.02). The gates and their sums are computed in float32. Order is known from the
    gates alone: positions are not read. The paper's output gate, norms and shift of keys and values are keys
    of the model: see `recipes/fox_pro_wikitext2.yaml`. Checked against `x_transformers` (DataDependentAlibi),
    a loop over the formula, with constant gates ALiBi and, `scaled` with `path`, a loop over PaTH-FoX.
    """

    formula = r"b_{ij} = \sum_{t=j+1}^{i} \ln f_t,\qquad f_t = \sigma(w_h \cdot x_t + c_h)"
    paper = "Lin et al. 2025 (arXiv:2503.02130)"
    family = "contextual"
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, gate_bias: float = 0.0, scaled: bool = False):
        super().__init__(size)
        self.scale = size.scale if scaled else 1.0
        self.gate = nn.Linear(size.d_model, size.num_heads)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.constant_(self.gate.bias, gate_bias)

    def read(self, x: Tensor) -> Tensor:
        """log f for each token and head, [B,T,H], in float32."""
        # In bf16 every gate would be off by up to 0.4 %, and the error of a sum grows with its length.
        with torch.autocast(x.device.type, enabled=False):
            return F.logsigmoid(F.linear(x.float(), self.gate.weight.float(), self.gate.bias.float()))

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        total_BHS = self._total(context)
        return context.own(total_BHS, -1)[..., None] - total_BHS[..., None, :]

    def key_score(self, k: Tensor, context: AttentionContext) -> Tensor:
        return -self._total(context)[..., None, :]

    def _total(self, context: AttentionContext) -> Tensor:
        """The sum of the log gates up to each key, [B,H,S]."""
        return self.scale * context.running_sum(context.features).transpose(1, 2)
