"""Context-aware biases (CABLE).

Shapes in names: B batch, T queries, S keys, H heads, F features that `read` returns (H or 2H).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.registry import register


@register("cable")
class CABLE(Encoding):
    """Distance is the sum of the steps between two tokens, whose length each token chooses, in each head.

    score = -|S_i - S_j| with S_t = s_1 + ... + s_t and s_t = softplus(w_s . x_t + b_s), where x_t is the
    input of the attention layer; added to the product of queries and keys, which is not divided. Each layer
    has its own weights.

    Options:
        weighted: whether each query scales its row by g_i = softplus(w_g . x_i + b_g), as the paper's CABLE
            does. Without it the method is the paper's CABLE_NW, the one that the authors released.
        step: what makes a step positive, `softplus` as in the authors' code or `relu`, under which a token
            may take up no room at all.
        scale: what the products of queries and keys are divided by. `none`: by nothing, as in the authors'
            model and training (src/Cable.py). `model`: by the root of the model's width, as in their notebook
            of the evaluation. `head`: by sqrt(D), as with other encodings; only so may it be combined with
            one that rotates, and only so does it follow `model.attention_scale`.

    w is drawn from N(0, 0.02), b starts at 0. Steps, gates and sums are computed in float32. Order is known
    from the steps alone: positions are not read. An encoder takes the absolute difference, which has no
    direction. The authors' code is github.com/axiomlab/Cable. Checked against a loop over the formula, for
    each of the scales and, with constant steps, ALiBi.
    """

    formula = (
        r"b_{ij} = -\Bigl|\sum_{t \le i} s_t - \sum_{t \le j} s_t\Bigr|,"
        r"\qquad s_t = \operatorname{softplus}(w_h \cdot x_t + c_h)"
    )
    paper = "Veisi, Amirzadeh, Mansourian 2025 (arXiv:2503.08067)"
    family = "contextual"
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(
        self,
        size: Size,
        *,
        weighted: bool = False,
        step: Literal["softplus", "relu"] = "softplus",
        scale: Literal["none", "model", "head"] = "none",
    ):
        super().__init__(size)
        # Attention itself multiplies by its own scale.
        self.factor = {"none": 1.0, "model": size.d_model**-0.5, "head": size.scale}[scale] / size.scale
        self.positive = F.softplus if step == "softplus" else F.relu
        self.steps = nn.Linear(size.d_model, size.num_heads)
        self.gates = nn.Linear(size.d_model, size.num_heads) if weighted else None
        for linear in (self.steps, self.gates):
            if linear is not None:
                nn.init.normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)

    def uses(self, hook: str) -> bool:
        return super().uses(hook) and (hook != "rotate" or self.factor != 1.0)

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

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Scales q, so that the product has the divisor of option `scale`."""
        return q * self.factor, k

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        position_BHS = self._positions(context)
        distance_BHTS = (context.own(position_BHS, -1)[..., None] - position_BHS[..., None, :]).abs()
        if self.gates is None:
            return -distance_BHTS
        gate_BTH = context.own(context.features)[..., self.size.num_heads :]
        return -gate_BTH.transpose(1, 2)[..., None] * distance_BHTS

    def key_score(self, k: Tensor, context: AttentionContext) -> Tensor | None:
        # Steps are positive: of what a query sees no key is ahead.
        return self._positions(context)[..., None, :] if context.causal and self.gates is None else None

    def _positions(self, context: AttentionContext) -> Tensor:
        """The sum of the steps up to each key, [B,H,S]."""
        return context.running_sum(context.features[..., : self.size.num_heads]).transpose(1, 2)
