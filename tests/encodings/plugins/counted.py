"""The hook `logits`: positions that are counted from the logits themselves."""

from typing import Literal

import torch
from torch import Tensor, nn

import zoo


@zoo.register("counted")
class Counted(zoo.Encoding):
    """A key's place is the number of gates that are open between it and the query.

    p_ij = g_ij + ... + g_ii with g = sigmoid(logits). The table e is read between its rows, and q_i e(p_ij)
    added to the logits.

    Options:
        rows: places that the table knows; more count as the last.
        gates: `sigmoid`, or `unit`: all open, so that p_ij is i - j + 1.
    """

    paper = "Golovneva et al. 2024 (arXiv:2405.18719)"
    family = "contextual"
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True

    def __init__(self, size: zoo.Size, *, rows: int = 8, gates: Literal["sigmoid", "unit"] = "sigmoid"):
        super().__init__(size)
        self.gates = gates
        self.table = nn.Parameter(0.1 * torch.randn(rows, size.head_dim))

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: zoo.AttentionContext) -> Tensor:
        gate = logits.sigmoid() if self.gates == "sigmoid" else torch.ones_like(logits)
        gate = gate.masked_fill(~context.allowed(), 0)
        last = len(self.table) - 1
        place = gate.flip(-1).cumsum(-1).flip(-1).clamp(max=last)
        low, share = place.floor().long(), place - place.floor()
        by_row = q @ self.table.to(q.dtype).T * self.size.head_dim**-0.5
        above = by_row.gather(-1, (low + 1).clamp(max=last))
        return logits + by_row.gather(-1, low) * (1 - share) + above * share
