"""Functional interpolation for relative positions (FIRE).

Tensors have their shape in their name: B sequences, T queries, S keys, P pairs of both, H heads, W hidden
units.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext, per_query_and_key
from zoo.recipe.fields import AboveZero, Positive
from zoo.registry import register

EPSILON = 1e-6
"""Added to the divisor, which is zero where training has brought c or L to zero."""

ROWS = 64
"""Queries of a block, whose hidden units are held at once."""


@register("fire")
class FIRE(Encoding):
    """A small network (MLP) over the logarithm of distance, relative to how far the query could look back.

    bias = MLP(psi(i - j) / psi(max(|L|, i)))_h with psi(x) = ln(|c| x + 1): a number between 0 and 1 at any
    length. The MLP has one hidden layer with ReLU; c and L are learned, L as a multiple of where it starts.
    Up to position L the bias depends on distance alone, beyond it on the query's position too.

    Options:
        width: of the hidden layer.
        c: where c starts, per token; above 0.
        threshold: where L starts, in tokens; above 0. None: at a quarter of the trained length, which is the
            paper's 512 where it trains, at 2048. Above the trained length training meets no query beyond L.
        activation: of the hidden layer, `relu`, or `leaky_relu` (slope 0.01) as inside the authors' DAPE.
        shared: whether all layers share one instance (FIRE-S); otherwise each has its own.

    L is learned as a multiple of `threshold`: a run that starts from the weights of one trained at another
    length keeps its L only where it gives that run's number. The last layer has no offset, which softmax
    would not see. Weights start as torch draws them. For decoders only: an encoder's query has no such
    farthest distance, and the paper defines none. The hidden units of all pairs are not kept for the backward
    pass but computed again. Checked against a loop over the paper's formula.
    """

    formula = (
        r"b_{ij} = \operatorname{MLP}\Bigl(\frac{\psi(i-j)}{\psi(\max(|L|, i))}\Bigr)_h,"
        r"\qquad \psi(x) = \ln(|c|\,x + 1)"
    )
    paper = "Li et al. 2024 (arXiv:2310.04418)"
    family = "bias"
    encoder = False
    extrapolates = "yes"
    fused = False
    per_layer = True
    lacks_offset = True

    def __init__(
        self,
        size: Size,
        *,
        width: Positive = 32,
        c: AboveZero = 0.1,
        threshold: AboveZero | None = None,
        activation: Literal["relu", "leaky_relu"] = "relu",
        shared: bool = False,
    ):
        super().__init__(size)
        self.per_layer = not shared
        self.threshold = size.length / 4 if threshold is None else threshold
        self.slope = 0.0 if activation == "relu" else 0.01
        self.c = nn.Parameter(torch.tensor([float(c)]))
        self.multiple = nn.Parameter(torch.ones(1))
        self.hidden = nn.Linear(1, width)
        self.out = nn.Linear(width, size.num_heads, bias=False)

    def bias_table(self, context: AttentionContext, num_heads: int) -> Tensor:
        compiling, count, keys = torch.compiler.is_compiling(), context.num_queries, context.k_pos.shape[-1]
        # A compiler decides itself which parts are computed again; a GPU takes larger blocks.
        rows = count if compiling else ROWS if context.q_pos.is_cpu else 16 * ROWS
        parts = []
        with torch.autocast(context.q_pos.device.type, enabled=False):
            for start in range(0, count, rows):
                q = context.q_pos[..., start : start + rows]
                # Keys later than the last query of the block are masked.
                seen = min(keys, context.query_offset + start + q.shape[-1]) if context.causal else keys
                k, options = context.k_pos[..., :seen], {"use_reentrant": False, "preserve_rng_state": False}
                part = self._table(q, k) if compiling else checkpoint(self._table, q, k, **options)
                parts.append(F.pad(part, (0, keys - seen)))
        return torch.cat(parts, -2)

    def share(self, q: Tensor, k: Tensor) -> Tensor:
        """How far the key lies back, of how far the query could look: 0 to 1, by the logarithm of both."""
        c, threshold = self.c.float().abs(), (self.multiple.float() * self.threshold).abs()
        # A later key has a distance too, as there is no logarithm otherwise; the causal mask hides it.
        return (c * (q - k).abs()).log1p() / ((c * torch.maximum(q, threshold)).log1p() + EPSILON)

    def _table(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """The bias [H,T,S], or [B,H,T,S] where sequences have positions of their own."""
        q, k = per_query_and_key(q_pos, k_pos)
        x = self.share(q.float(), k.float())
        units_WP = torch.addmm(self.hidden.bias.float()[:, None], self.hidden.weight.float(), x.view(1, -1))
        table = self.out.weight.float() @ F.leaky_relu(units_WP, self.slope)
        table = table.unflatten(1, x.shape)
        # [H,T,S], or [H,B,1,T,S].
        return table if table.dim() == 3 else table.squeeze(2).transpose(0, 1)
