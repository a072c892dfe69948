"""Relative position representations.

Shapes in names: B batch, T queries, S keys, H heads, R rows of the tables (B and H may be 1 in
`rows_BHTS`).
"""

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("shaw")
class Shaw(Encoding):
    """A learned vector for each clipped distance, added to the keys and, where asked, to the values.

    score = q_i . a^K_c / sqrt(D) and output = sum_j w_ij a^V_c, with c = clip(j - i, -max_distance,
    max_distance).
    Each layer has its own tables; the heads of a layer share them.

    Options:
        max_distance: distances beyond it share one vector, in tokens.
        values: whether the values get vectors too, as in the paper. Those need the attention weights, which
            no fused kernel returns: slower.

    Drawn from N(0, 0.02). Checked against a loop over the paper's equations 3 to 5.
    """

    formula = (
        r"a_{ij} = \frac{q_i \cdot (k_j + a^K_c)}{\sqrt{D}},\quad o_i = \sum_j w_{ij} (v_j + a^V_c),"
        r"\qquad c = \operatorname{clip}(j-i, -m, m)"
    )
    paper = "Shaw, Uszkoreit, Vaswani 2018 (arXiv:1803.02155)"
    family = "content"
    relative = True
    extrapolates = "yes"
    per_layer = True
    integer_positions = True

    def __init__(self, size: Size, *, max_distance: Positive = 16, values: bool = True):
        super().__init__(size)
        self.max_distance = max_distance
        rows = 2 * max_distance + 1
        self.keys = nn.Parameter(0.02 * torch.randn(rows, size.head_dim))
        # Checkpoints have it under this name, which is a hook's too: torch refuses to set it as an attribute.
        self._parameters["values"] = nn.Parameter(0.02 * torch.randn(rows, size.head_dim)) if values else None

    @property
    def values(self) -> nn.Parameter | None:
        """The vectors that distances add to values, [2 max_distance + 1, D]; in place of the hook."""
        return self._parameters["values"]

    def uses(self, hook: str) -> bool:
        return hook != "values" and super().uses(hook) and (hook != "value" or self.values is not None)

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        # All 2m+1 products first and then a lookup: no [T,S,D] tensor.
        products_BHTR = q @ self.keys.to(q.dtype).T * self.size.scale
        return products_BHTR.gather(-1, self._rows(context).expand(*q.shape[:2], -1, -1))

    def value(self, weights: Tensor, context: AttentionContext) -> Tensor | None:
        table = self.values
        if table is None:
            return None
        rows_BHTS = self._rows(context).expand_as(weights)
        by_row_BHTR = weights.new_zeros(*weights.shape[:-1], len(table))
        return by_row_BHTR.scatter_add(-1, rows_BHTS, weights) @ table.to(weights.dtype)

    def _rows(self, context: AttentionContext) -> Tensor:
        """The table row for every query and key, [1,1,T,S] or [B,1,T,S]."""
        distance = context.distance().clamp(-self.max_distance, self.max_distance)
        rows_BHTS = self.max_distance - distance.long()
        return rows_BHTS if rows_BHTS.dim() == 4 else rows_BHTS[None, None]
