"""Functional interpolation for relative positions (FIRE)."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, Span, per_query_and_key
from zoo.encodings.pair_network import pair_network
from zoo.field_types import AboveZero, Positive
from zoo.registry import register

EPSILON = 1e-6
"""Added to the divisor, which is zero where training has brought c or L to zero."""

BLOCK_ELEMENTS = 2**19
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
        weights = self.hidden.weight[:, 0], self.hidden.bias, self.out.weight
        weights = tuple(weight.float() for weight in weights)
        learns, on_gpu = torch.is_grad_enabled(), span.q_pos.is_cuda
        with torch.autocast(span.q_pos.device.type, enabled=False):
            if torch.compiler.is_compiling() and (on_gpu or not learns):
                # A compiler fuses plain operations itself; only in training on a CPU that is slower.
                return _table(span, self.slope, *self._scales(), *weights)
            if learns:
                where = span.q_pos, span.k_pos, span.first, span.causal
                return _trained_table(*where, self.slope, *self._scales(), *weights)
            network = _Bends(span, self.slope, *weights).network()
            return _table(span, self.slope, *self._scales(), *network)

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


def _table(
    span: Span, slope: float, c: Tensor, threshold: Tensor, weight_W: Tensor, offset_W: Tensor, out_HW: Tensor
) -> Tensor:
    """The bias [H,T,S] or [B,H,T,S]."""
    q, k = per_query_and_key(span.q_pos, span.k_pos)
    x = _share(q.float(), k.float(), c, threshold)
    hidden = weight_W[:, None], offset_W
    table = pair_network(x.flatten()[None], hidden, slope, (out_HW, None)).unflatten(1, x.shape)
    # [H,T,S], or [H,B,1,T,S].
    return table if table.dim() == 3 else table.squeeze(2).transpose(0, 1)


class _Bends:
    """Which hidden units bend between 0 and 1; the others are lines there, and together one line for a head.

    A unit is off below its bend and on above it, or the other way round: as torch draws the weights, three
    quarters of them have none between 0 and 1, where all pairs lie.
    """

    def __init__(self, span: Span, slope: float, weight_W: Tensor, offset_W: Tensor, out_HW: Tensor):
        # Ahead of position 0 a key may lie farther back than the query could look.
        high = torch.where(span.k_pos.min() >= 0, 1.0, torch.inf)
        on_W = offset_W > 0
        bends_W = (weight_W * high + offset_W > 0) != on_W
        # A GPU would have to be waited for; all units are multiplied there.
        bends_W = bends_W if bends_W.is_cpu else torch.ones(len(on_W), dtype=torch.bool)
        self.bent, self.straight = (mask.nonzero()[:, 0].to(on_W.device) for mask in (bends_W, ~bends_W))
        self.weight_S, self.offset_S, self.out_HS = (x[..., self.bent] for x in (weight_W, offset_W, out_HW))
        self.slope_R = on_W[self.straight].float().clamp_(min=slope)
        rest_HR = out_HW[:, self.straight] * self.slope_R
        self.rise_H, self.offset_H = (rest_HR @ x[self.straight] for x in (weight_W, offset_W))

    def network(self) -> tuple[Tensor, Tensor, Tensor]:
        """A smaller network that gives the same: the line is that of two units which are on from 0 to 1."""
        weight = torch.cat((self.weight_S, self.weight_S.new_tensor([1.0, 0.0])))
        offset = torch.cat((self.offset_S, self.offset_S.new_tensor([0.0, 1.0])))
        return weight, offset, torch.column_stack((self.out_HS, self.rise_H, self.offset_H))


# Operators of their own, so that torch.compile leaves them as they are.
@torch.library.custom_op("zoo::fire_table", mutates_args=())
def _trained_table(
    q_pos: Tensor,
    k_pos: Tensor,
    first: int,
    causal: bool,
    slope: float,
    c: Tensor,
    threshold: Tensor,
    weight_W: Tensor,
    offset_W: Tensor,
    out_HW: Tensor,
) -> Tensor:
    """The table of the pairs that the causal mask leaves, a block of queries at a time; 0 elsewhere. Nothing
    of a pair is kept for the backward pass."""
    span = Span(q_pos, k_pos, first, causal)
    network = _Bends(span, slope, weight_W, offset_W, out_HW).network()
    table = _empty_table(q_pos, k_pos, out_HW)
    for rows in _blocks(span, len(network[0])):
        start = rows.first - first
        some = table[..., start : start + rows.num_queries, :]
        some[..., : rows.num_keys] = _table(rows, slope, c, threshold, *network)
        some[..., rows.num_keys :] = 0
    return table


def _empty_table(q_pos: Tensor, k_pos: Tensor, out_HW: Tensor) -> Tensor:
    """[H,T,S], or [B,H,T,S] where sequences have positions of their own."""
    batch = torch.broadcast_shapes(q_pos.shape[:-1], k_pos.shape[:-1])
    return out_HW.new_empty(*batch, len(out_HW), q_pos.shape[-1], k_pos.shape[-1])


@_trained_table.register_fake
def _(q_pos: Tensor, k_pos: Tensor, first: int, causal: bool, slope: float, *weights: Tensor) -> Tensor:
    return _empty_table(q_pos, k_pos, weights[-1])


@torch.library.custom_op("zoo::fire_table_backward", mutates_args=())
def _backward(
    dtable: Tensor,
    q_pos: Tensor,
    k_pos: Tensor,
    c: Tensor,
    threshold: Tensor,
    weight_W: Tensor,
    offset_W: Tensor,
    out_HW: Tensor,
    first: int,
    causal: bool,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of c, L and the weights.

    All come from a_wp, the slope of hidden unit w at pair p: with g that of the biases, sum_p g_hp a_wp and
    sum_p g_hp x_p a_wp hold those of the weights, and that of x_p is sum_h g_hp sum_w o_hw m_w a_wp, with m
    the weights of the hidden layer and o those of the last. Of the units without a bend, a is one number.
    """
    span = Span(q_pos, k_pos, first, causal)
    bends = _Bends(span, slope, weight_W, offset_W, out_HW)
    units = len(bends.weight_S)
    rise_HU = torch.column_stack((bends.out_HS * bends.weight_S, bends.rise_H))
    dc, dthreshold = torch.zeros_like(c), torch.zeros_like(threshold)
    sums_HU = out_HW.new_zeros(2, len(out_HW), units + 1)
    for rows in _blocks(span, units + 1):
        q, k = (pos.float() for pos in per_query_and_key(rows.q_pos, rows.k_pos))
        distance, far = (q - k).abs(), torch.maximum(q, threshold)
        scaled, divisor = c * distance, (c * far).log1p() + EPSILON
        x = scaled.log1p().div_(divisor)
        start = rows.first - first
        g_HP = dtable[..., start : start + rows.num_queries, : rows.num_keys]
        g_HP = (g_HP if g_HP.dim() == 3 else g_HP.transpose(0, 1)).flatten(1)
        x_P = x.flatten()
        # The last row is that of the line.
        slope_UP = x_P.new_ones(units + 1, len(x_P))
        bent_SP = torch.mul(bends.weight_S[:, None], x_P, out=slope_UP[:units])
        bent_SP.add_(bends.offset_S[:, None]).gt_(0)
        if slope:
            bent_SP.clamp_(min=slope)
        sums_HU[0] += g_HP @ slope_UP.T
        sums_HU[1] += (g_HP * x_P) @ slope_UP.T
        dx = (rise_HU @ slope_UP).mul_(g_HP).sum(0).view_as(x)
        # x = ln(1 + c distance) / (ln(1 + c far) + epsilon), where far grows with L up to L.
        by_query = x.mul_(dx).sum(-1, keepdim=True) / divisor / (1 + c * far)
        dc += (dx.mul_(distance).div_(scaled.add_(1)).sum(-1, keepdim=True) / divisor).sum()
        dc -= (by_query * far).sum()
        dthreshold -= (by_query * c * torch.heaviside(threshold - q, by_query.new_tensor(0.5))).sum()
    sums_HW = sums_HU.new_empty(2, *out_HW.shape)
    sums_HW[..., bends.bent] = sums_HU[..., :units]
    sums_HW[..., bends.straight] = sums_HU[..., units:] * bends.slope_R
    doffset_W, dweight_W = ((out_HW * sums).sum(0) for sums in sums_HW)
    return dc, dthreshold, dweight_W, doffset_W, sums_HW[1] * weight_W + sums_HW[0] * offset_W


@_backward.register_fake
def _(dtable: Tensor, q_pos: Tensor, k_pos: Tensor, *given: Any):
    return tuple(torch.empty_like(x) for x in given[:5])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q_pos, k_pos, *ctx.options = inputs[:5]
    ctx.save_for_backward(q_pos, k_pos, *inputs[5:])


def _gradients(ctx: Any, dtable: Tensor) -> tuple[Tensor | None, ...]:
    return *(None,) * 5, *_backward(dtable, *ctx.saved_tensors, *ctx.options)


_trained_table.register_autograd(_gradients, setup_context=_save)


def _blocks(span: Span, width: int) -> Iterator[Span]:
    block = max(16, BLOCK_ELEMENTS // (span.num_keys * width))
    for start in range(0, span.num_queries, block):
        yield span.queries(start, min(start + block, span.num_queries))
