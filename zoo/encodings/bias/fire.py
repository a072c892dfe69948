"""Functional interpolation for relative positions (FIRE)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.encodings.base import Encoding, Size, Span, per_query_and_key
from zoo.encodings.pair_network import pair_network
from zoo.field_types import AboveZero, Positive
from zoo.registry import register

EPSILON = 1e-6
"""Added to the divisor, which is zero where training has brought c or L to zero."""

BLOCK_ELEMENTS = 2**20
"""Of the hidden units of a block of queries, so that they stay in the processor's cache."""


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

    L is learned as a multiple of `threshold`: a run that goes on from the weights of one trained at another
    length keeps its L only where it gives that run's number. The last layer has no offset, which softmax
    would not see. Weights start as torch draws them. For decoders only: an encoder's query has no such
    farthest distance, and the paper defines none. The hidden units of all pairs are not kept for the
    backward pass but computed again. Checked against a loop over the paper's formula.
    """

    paper = "Li et al. 2024 (arXiv:2310.04418)"
    family = "bias"
    learns = "layers * (66 + 32 * heads)"
    encoder = False
    extrapolates = "yes"
    fused = False
    per_layer = True

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
        self.activate_ = torch.relu_ if activation == "relu" else F.leaky_relu_
        # Of one element each: what has no dimension cannot be shared out over devices.
        self.c = nn.Parameter(torch.tensor([float(c)]))
        self.multiple = nn.Parameter(torch.ones(1))
        self.hidden = nn.Linear(1, width)
        self.out = nn.Linear(width, size.num_heads, bias=False)

    def bias_table(self, span: Span, num_heads: int) -> Tensor:
        block = max(16, BLOCK_ELEMENTS // (span.num_keys * self.hidden.out_features))
        if block >= span.num_queries or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._table(span)
        tables = []
        for start in range(0, span.num_queries, block):
            rows = span.queries(start, min(start + block, span.num_queries))
            table = checkpoint(self._table, rows, use_reentrant=False, preserve_rng_state=False)
            tables.append(F.pad(table, (0, span.num_keys - rows.num_keys)))
        return torch.cat(tables, -2)

    def _table(self, span: Span) -> Tensor:
        q, k = per_query_and_key(span.q_pos, span.k_pos)
        with torch.autocast(q.device.type, enabled=False):
            x = self.share(q.float(), k.float())
            table = pair_network(x.flatten()[None], self.hidden, self.activate_, self.out)
            table = table.unflatten(1, x.shape)
        # [H,T,S], or [H,B,1,T,S].
        return table if table.dim() == 3 else table.squeeze(2).transpose(0, 1)

    def share(self, q: Tensor, k: Tensor) -> Tensor:
        """How far the key lies back, of how far the query could look: 0 to 1, by the logarithm of both."""
        c, threshold = self.c.float().abs(), (self.multiple.float() * self.threshold).abs()
        # A later key has a distance too, as there is no logarithm otherwise; the causal mask hides it.
        far = torch.maximum(q, threshold)
        return (c * (q - k).abs()).log1p() / ((c * far).log1p() + EPSILON)
