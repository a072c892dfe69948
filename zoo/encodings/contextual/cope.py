"""Contextual position encoding (CoPE).

Shapes in names: B batch, T queries, S keys, H heads, P rows of the table.
"""

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, Span
from zoo.field_types import Several
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

    paper = "Golovneva, Wang, Weston, Sukhbaatar 2024 (arXiv:2405.18719)"
    family = "contextual"
    learns = "layers * 64 * head_width"
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, max_positions: Several = 64):
        super().__init__(size)
        self.table = nn.Parameter(torch.zeros(max_positions, size.head_dim))

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, span: Span) -> Tensor:
        # The logits come in float32, and the sums must stay there: a bf16 sum stops growing at 256.
        with torch.autocast(q.device.type, enabled=False):
            # Keys that the query may not see are not counted.
            gate_BHTS = logits.sigmoid().masked_fill(~span.allowed(), 0.0)
            last = len(self.table) - 1
            position_BHTS = gate_BHTS.flip(-1).cumsum(-1).flip(-1).clamp(max=last)
            below_BHTS = position_BHTS.detach().long()
            scores_BHTP = q.to(logits.dtype) @ self.table.to(logits.dtype).T * self.size.head_dim**-0.5
            low_BHTS = scores_BHTP.gather(-1, below_BHTS)
            high_BHTS = scores_BHTP.gather(-1, (below_BHTS + 1).clamp(max=last))
            return logits + torch.lerp(low_BHTS, high_BHTS, position_BHTS - below_BHTS)
