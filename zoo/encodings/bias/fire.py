"""Functional interpolation for relative positions (FIRE)."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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

    formula = (
        r"b_{ij} = \operatorname{MLP}\Bigl(\frac{\psi(i-j)}{\psi(\max(|L|, i))}\Bigr)_h,"
        r"\qquad \psi(x) = \ln(|c|\,x + 1)"
    )
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
        self.slope = 0.0 if activation == "relu" else 0.01
        # Of one element each: what has no dimension cannot be shared out over devices.
        self.c = nn.Parameter(torch.tensor([float(c)]))
        self.multiple = nn.Parameter(torch.ones(1))
        self.hidden = nn.Linear(1, width)
        self.out = nn.Linear(width, size.num_heads, bias=False)

    def bias_table(self, span: Span, num_heads: int) -> Tensor:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._table(span)
        weights = self.hidden.weight[:, 0], self.hidden.bias, self.out.weight
        return _Biases.apply(self, span, *self._scales(), *(weight.float() for weight in weights))

    def _table(self, span: Span) -> Tensor:
        q, k = per_query_and_key(span.q_pos, span.k_pos)
        with torch.autocast(q.device.type, enabled=False):
            x = self.share(q.float(), k.float())
            table = pair_network(x.flatten()[None], self.hidden, self._activate_, self.out)
            table = table.unflatten(1, x.shape)
        # [H,T,S], or [H,B,1,T,S].
        return table if table.dim() == 3 else table.squeeze(2).transpose(0, 1)

    def _activate_(self, x: Tensor) -> Tensor:
        return F.leaky_relu_(x, self.slope)

    def share(self, q: Tensor, k: Tensor) -> Tensor:
        """How far the key lies back, of how far the query could look: 0 to 1, by the logarithm of both."""
        return _share(q, k, *self._scales())

    def _scales(self) -> tuple[Tensor, Tensor]:
        """|c| and |L|, [1] each, in float32."""
        return self.c.float().abs(), (self.multiple.float() * self.threshold).abs()


def _share(q: Tensor, k: Tensor, c: Tensor, threshold: Tensor) -> Tensor:
    # A later key has a distance too, as there is no logarithm otherwise; the causal mask hides it.
    far = torch.maximum(q, threshold)
    return (c * (q - k).abs()).log1p() / ((c * far).log1p() + EPSILON)


class _Biases(torch.autograd.Function):
    """The table of the pairs that the causal mask leaves, a block of queries at a time; 0 elsewhere.

    Nothing of a pair is kept. All gradients come from a_wp, the slope of hidden unit w at pair p: with g that
    of the biases, sum_p g_hp a_wp and sum_p g_hp x_p a_wp hold those of the weights, and that of x_p is
    sum_h g_hp sum_w o_hw m_w a_wp, with m the weights of the hidden layer and o those of the last.
    """

    @staticmethod
    def forward(ctx: Any, encoding: FIRE, span: Span, *parameters: Tensor) -> Tensor:
        ctx.span, ctx.slope = span, encoding.slope
        ctx.save_for_backward(*parameters)
        parts = []
        for rows in _blocks(span, encoding.hidden.out_features):
            parts.append(F.pad(encoding._table(rows), (0, span.num_keys - rows.num_keys)))
        return torch.cat(parts, -2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtable: Tensor) -> tuple[Tensor | None, ...]:
        c, threshold, weight_W, offset_W, out_HW = ctx.saved_tensors
        of_share = c.detach().requires_grad_(), threshold.detach().requires_grad_()
        dshare = [torch.zeros_like(c), torch.zeros_like(threshold)]
        sums_HW = out_HW.new_zeros(2, *out_HW.shape)
        for rows in _blocks(ctx.span, len(weight_W)):
            q, k = per_query_and_key(rows.q_pos, rows.k_pos)
            with torch.enable_grad():
                x = _share(q.float(), k.float(), *of_share)
            start = rows.first - ctx.span.first
            g_HP = dtable[..., start : start + rows.num_queries, : rows.num_keys]
            g_HP = (g_HP if g_HP.dim() == 3 else g_HP.transpose(0, 1)).flatten(1)
            x_P = x.detach().flatten()
            slope_WP = (weight_W[:, None] * x_P).add_(offset_W[:, None]).gt_(0).clamp_(min=ctx.slope)
            sums_HW[0] += g_HP @ slope_WP.T
            sums_HW[1] += (g_HP * x_P) @ slope_WP.T
            dx_P = ((out_HW * weight_W) @ slope_WP).mul_(g_HP).sum(0)
            for total, part in zip(dshare, torch.autograd.grad(x, of_share, dx_P.view_as(x)), strict=True):
                total += part
        doffset_W, dweight_W = (out_HW * sums_HW).sum(1)
        return None, None, *dshare, dweight_W, doffset_W, sums_HW[1] * weight_W + sums_HW[0] * offset_W


def _blocks(span: Span, width: int) -> Iterator[Span]:
    block = max(16, BLOCK_ELEMENTS // (span.num_keys * width))
    for start in range(0, span.num_queries, block):
        yield span.queries(start, min(start + block, span.num_queries))
