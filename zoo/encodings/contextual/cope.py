"""Contextual position encoding (CoPE).

Shapes in names: B batch, T queries, S keys, H heads, P rows of the table.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import AtLeastTwo
from zoo.registry import register


@register("cope")
class CoPE(Encoding):
    """A key's position is the number of tokens from it to the query that the query chooses to count.

    p_ij = g_ij + ... + g_ii with g_ij = sigmoid(q_i . k_j / sqrt(D)), at most max_positions - 1, and
    score = q_i . e[p_ij] / sqrt(D), interpolated between the vectors of the two integers around p_ij.
    Each layer has its own vectors; its heads share them.

    Options:
        max_positions: (`npos_max` there) vectors in the table; keys counted farther away share the last.

    Where other encodings of a list add to the scores, the gates are those of the sum. The position scores
    are divided by sqrt(D), as in the authors' repository; the listing in the paper's appendix, and most
    ports, add them undivided. Vectors start at 0, gates and sums are computed in float32. Positions are not
    read. Needs several tables of queries by keys for each head. Checked against `x_transformers` (CoPE), a
    loop over the equations of the paper's section 3 and, with all gates open, a table over distances.
    """

    formula = (
        r"a_{ij} = \frac{q_i \cdot (k_j + e[p_{ij}])}{\sqrt{D}},"
        r"\qquad p_{ij} = \sum_{t=j}^{i} \sigma\Bigl(\frac{q_i \cdot k_t}{\sqrt{D}}\Bigr)"
    )
    paper = "Golovneva, Wang, Weston, Sukhbaatar 2024 (arXiv:2405.18719)"
    family = "contextual"
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, max_positions: AtLeastTwo = 64):
        super().__init__(size)
        self.table = nn.Parameter(torch.zeros(max_positions, size.head_dim))

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        # The logits come in float32, and the sums must stay there: a bf16 sum stops growing at 256.
        with torch.autocast(q.device.type, enabled=False):
            scores_BHTP = q.to(logits.dtype) @ self.table.to(logits.dtype).T * self.size.scale
            return logits + _Counted.apply(logits, scores_BHTP, context.allowed())


class _Counted(torch.autograd.Function):
    """The scores at every key's position, [B,H,T,S], from those at whole positions, [B,H,T,P].

    Three tables are kept for the gradients; the operations one by one would keep twice as many.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, scores_BHTP: Tensor, allowed: Tensor) -> Tensor:
        # Keys that the query may not see are not counted.
        gate_BHTS = logits.sigmoid().masked_fill_(~allowed, 0.0)
        last = scores_BHTP.shape[-1] - 1
        position_BHTS = gate_BHTS.flip(-1).cumsum(-1).flip(-1).clamp_(max=last)
        below_BHTS = position_BHTS.long()
        low_BHTS = scores_BHTP.gather(-1, below_BHTS)
        # None at the last position, where counting has ended.
        slope_BHTS = scores_BHTP.gather(-1, (below_BHTS + 1).clamp_(max=last)).sub_(low_BHTS)
        ctx.save_for_backward(gate_BHTS, position_BHTS, slope_BHTS)
        ctx.positions = last + 1
        return low_BHTS.addcmul_(slope_BHTS, position_BHTS.frac())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_BHTS: Tensor) -> tuple[Tensor | None, ...]:
        gate_BHTS, position_BHTS, slope_BHTS = ctx.saved_tensors
        # Every later key's gate is counted in a position: the gradient of a gate sums those before it.
        dgate_BHTS = (dout_BHTS * slope_BHTS).cumsum(-1)
        dlogits = dgate_BHTS.mul_(gate_BHTS).mul_(1 - gate_BHTS)
        below_BHTS = position_BHTS.long()
        to_high_BHTS = dout_BHTS * position_BHTS.frac()
        dscores_BHTP = dout_BHTS.new_zeros(*dout_BHTS.shape[:-1], ctx.positions + 1)
        dscores_BHTP.scatter_add_(-1, below_BHTS, dout_BHTS - to_high_BHTS)
        dscores_BHTP.scatter_add_(-1, below_BHTS.add_(1), to_high_BHTS)
        # Beyond the last position the share is 0.
        return dlogits, dscores_BHTP[..., :-1], None
