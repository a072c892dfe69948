"""Context re-positioning (RePo): each token chooses its own position.

Shapes in names: B batch, S keys, H heads, P pairs of a head's dimensions.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import RoPE
from zoo.encodings.rotary.rotation import turn
from zoo.recipe.fields import AboveOne, Count
from zoo.registry import register


@register("repo")
class RePo(RoPE):
    """RoPE at positions that each token computes from its own vector, in each head of the deeper layers.

    r = W_o (silu(W_g x) * W_c x) are the positions of a token in all heads, real numbers without bounds and
    in any order, where x is the input of the attention layer and W_g and W_c have d_model / 8 rows. Layers
    before `start` are plain RoPE. Each later layer has its own weights.

    Options:
        start: the first layer with such positions, counted from 0. null: after a third of the layers, as in
            the authors' model (5 of 16).
        base: that of RoPE. The authors continue the training of a model with base 500,000.
        layout: that of RoPE, `half` or `interleaved`.

    Weights are drawn from N(0, 0.02), cut at three deviations, as in the authors' code: at the start all
    positions are near 0, and only the mask knows the order. Positions and angles are computed in float32. In
    the authors' code (github.com/SakanaAI/repo, `olmo/model.py`) positions are in the precision of the model,
    and the sines too; x is not normalised there, because their blocks normalise the output. Checked against a
    loop over the formula, and before `start` against rope.
    """

    formula = (
        r"a_{ij} = \frac{(R_{r_i}\, q_i) \cdot (R_{r_j}\, k_j)}{\sqrt{D}},"
        r"\qquad r = w_h \cdot \bigl(\operatorname{silu}(W_g x) \odot W_c x\bigr)"
    )
    paper = "Li et al. 2025 (arXiv:2512.14391)"
    family = "contextual"
    extrapolates = "yes"
    after_training = ()
    per_layer = True

    def __init__(
        self,
        size: Size,
        *,
        start: Count | None = None,
        base: AboveOne = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
    ):
        super().__init__(size, base=base, layout=layout)
        start = size.num_layers // 3 if start is None else start
        self.reads_positions = (size.layer or 0) < start
        if self.reads_positions:
            return
        width = max(1, size.d_model // 8)
        self.gate = nn.Linear(size.d_model, width, bias=False)
        self.content = nn.Linear(size.d_model, width, bias=False)
        self.assign = nn.Linear(width, size.num_heads, bias=False)
        for linear in (self.gate, self.content, self.assign):
            nn.init.trunc_normal_(linear.weight, std=0.02, a=-0.06, b=0.06)

    def uses(self, hook: str) -> bool:
        return super().uses(hook) and not (hook == "read" and self.reads_positions)

    def read(self, x: Tensor) -> Tensor | None:
        """The position of each token in each head, [B,T,H], in float32."""
        if self.reads_positions:
            return None
        with torch.autocast(x.device.type, enabled=False):
            gate, content = (F.linear(x.float(), one.weight.float()) for one in (self.gate, self.content))
            return F.linear(F.silu(gate) * content, self.assign.weight.float())

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        if self.reads_positions:
            return super().rotate(q, k, context)
        with torch.autocast(q.device.type, enabled=False):
            angle_BHSP = context.features.transpose(1, 2)[..., None] * self.frequency
        cos, sin = angle_BHSP.cos(), angle_BHSP.sin()
        own = (context.own(one, 2) for one in (cos, sin))
        return turn(q, *own, self.layout), turn(k, cos, sin, self.layout)
