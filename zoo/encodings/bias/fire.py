"""Functional interpolation for relative positions (FIRE).

Tensors have their shape in their name: B sequences, T queries, S keys, N queries of all sequences; R queries
and K keys of a block, P its pairs; H heads, W hidden units, U those with a kink, V those and the line; X the
three sums of the backward pass.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, Span, per_query_and_key
from zoo.field_types import AboveZero, Positive
from zoo.registry import register

EPSILON = 1e-6
"""Added to the divisor, which is zero where training has brought c or L to zero."""

BLOCK_ELEMENTS = {"cpu": 2**20, "cuda": 2**26}
"""Numbers held for a block of queries: on a CPU they stay in its cache, a GPU's kernels are large."""


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
        where = span.q_pos, span.k_pos
        with torch.autocast(span.q_pos.device.type, enabled=False):
            given = *self._scales(), *self._kinks(span)
            if torch.compiler.is_compiling() and (span.q_pos.is_cuda or not torch.is_grad_enabled()):
                # A compiler fuses plain operations itself; only in training on a CPU that is slower.
                return _table(*where, *given)
            return _blocked_table(*where, span.first, span.causal, *given)

    def share(self, q: Tensor, k: Tensor) -> Tensor:
        """How far the key lies back, of how far the query could look: 0 to 1, by the logarithm of both."""
        return _share(q, k, *self._scales())

    def _scales(self) -> tuple[Tensor, Tensor]:
        """|c| and |L|, [1] each, in float32."""
        return self.c.float().abs(), (self.multiple.float() * self.threshold).abs()

    def _kinks(self, span: Span) -> tuple[Tensor, Tensor, Tensor]:
        """The network as a line with kinks: for x from 0 to 1, MLP(x)_h is the sum over the hidden units w of
        rise_hw max(x, kink_w), plus slope_h x + offset_h.

        As torch draws the weights, three quarters of the units have no kink between 0 and 1, where all pairs
        lie, and are part of the line; their kink is given as -1, and their rise is 0.

        Returns: kink [W], rise [H,W], and slope and offset as [H,2], in float32.
        """
        weight_W, offset_W, out_HW = (
            self.hidden.weight[:, 0].float(),
            self.hidden.bias.float(),
            self.out.weight.float(),
        )
        # Ahead of position 0 a key may lie farther back than the query could look.
        high = torch.where(span.k_pos.min() >= 0, 1.0, torch.inf)
        kink_W = -offset_W.detach() / weight_W.detach()
        bends_W = (kink_W >= 0) & (kink_W < high)
        rises_W = weight_W > 0
        # The parts of a unit's own line that belong to the line of all: with m x + n for what goes into it, a
        # unit with a kink at b is m max(x, b) + n if it rises, else |m| max(x, b) + m x.
        part_in_slope_W = torch.where(torch.where(bends_W, ~rises_W, offset_W > 0), 1.0, self.slope)
        part_in_offset_W = torch.where(torch.where(bends_W, rises_W, offset_W > 0), 1.0, self.slope)
        slope_H, offset_H = out_HW @ (part_in_slope_W * weight_W), out_HW @ (part_in_offset_W * offset_W)
        rise_HW = out_HW * torch.where(bends_W, (1 - self.slope) * weight_W.abs(), 0.0)
        kink_W = torch.where(bends_W, -offset_W / torch.where(bends_W, weight_W, 1.0), -1.0)
        return kink_W, rise_HW, torch.stack((slope_H, offset_H), 1)


def _share(q: Tensor, k: Tensor, c: Tensor, threshold: Tensor) -> Tensor:
    # A later key has a distance too, as there is no logarithm otherwise; the causal mask hides it.
    return (c * (q - k).abs()).log1p() / _farthest(q, c, threshold)


def _farthest(q: Tensor, c: Tensor, threshold: Tensor) -> Tensor:
    return (c * torch.maximum(q, threshold)).log1p() + EPSILON


def _table(
    q_pos: Tensor,
    k_pos: Tensor,
    c: Tensor,
    threshold: Tensor,
    kink_W: Tensor,
    rise_HW: Tensor,
    line_H2: Tensor,
) -> Tensor:
    """The bias [H,T,S] or [B,H,T,S]."""
    q, k = per_query_and_key(q_pos, k_pos)
    x = _share(q.float(), k.float(), c, threshold)
    x_P = x.flatten()
    table = rise_HW @ torch.maximum(x_P, kink_W[:, None]) + line_H2[:, :1] * x_P + line_H2[:, 1:]
    table = table.unflatten(1, x.shape)
    # [H,T,S], or [H,B,1,T,S].
    return table if table.dim() == 3 else table.squeeze(2).transpose(0, 1)


# Operators of their own, so that torch.compile leaves them as they are.
@torch.library.custom_op("zoo::fire_table", mutates_args=())
def _blocked_table(
    q_pos: Tensor,
    k_pos: Tensor,
    first: int,
    causal: bool,
    c: Tensor,
    threshold: Tensor,
    kink_W: Tensor,
    rise_HW: Tensor,
    line_H2: Tensor,
) -> Tensor:
    """`_table` of the pairs that the causal mask leaves, a block of queries at a time; 0 elsewhere. Nothing
    of a pair is kept for the backward pass."""
    table = _empty_table(q_pos, k_pos, rise_HW)
    bent = _bent(kink_W)
    kink_U1, network_HV = kink_W[bent, None], torch.cat((rise_HW[:, bent], line_H2), 1)
    for sequence, rows, q_R, k_K in _blocks(q_pos, k_pos, first if causal else None, network_HV.shape[1]):
        x_RK = _share(q_R[:, None], k_K, c, threshold)
        units_VP = network_HV.new_empty(network_HV.shape[1], x_RK.numel())
        torch.maximum(x_RK.flatten(), kink_U1, out=units_VP[:-2])
        units_VP[-2], units_VP[-1] = x_RK.flatten(), 1
        of_block = table.view(-1, *table.shape[-3:])[sequence, :, rows]
        of_block[..., : len(k_K)] = (network_HV @ units_VP).unflatten(1, x_RK.shape)
        of_block[..., len(k_K) :] = 0
    return table


def _empty_table(q_pos: Tensor, k_pos: Tensor, rise_HW: Tensor) -> Tensor:
    """[H,T,S], or [B,H,T,S] where sequences have positions of their own."""
    batch = torch.broadcast_shapes(q_pos.shape[:-1], k_pos.shape[:-1])
    return rise_HW.new_empty(*batch, len(rise_HW), q_pos.shape[-1], k_pos.shape[-1])


@_blocked_table.register_fake
def _(q_pos: Tensor, k_pos: Tensor, first: int, causal: bool, *given: Tensor) -> Tensor:
    return _empty_table(q_pos, k_pos, given[3])


@torch.library.custom_op("zoo::fire_table_backward", mutates_args=())
def _backward(
    dtable: Tensor,
    q_pos: Tensor,
    k_pos: Tensor,
    c: Tensor,
    threshold: Tensor,
    kink_W: Tensor,
    rise_HW: Tensor,
    line_H2: Tensor,
    first: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of c, L and the network.

    With g that of the biases and x = psi(i - j) / psi(far), all come from three sums over the keys of each
    query that lie beyond a kink, x > kink_w: of g, of g psi(i - j), and of g times the derivative of
    psi(i - j) by c.
    """
    bent = _bent(kink_W)
    # The line is a unit beyond whose kink all keys lie.
    kink_V1 = torch.cat((kink_W[bent], kink_W.new_tensor([-1.0])))[:, None]
    rise_HV = torch.cat((rise_HW[:, bent], line_H2[:, :1]), 1)
    heads, units = rise_HV.shape
    dtable_BHTS = dtable.reshape(-1, *dtable.shape[-3:])
    batch, queries = len(dtable_BHTS), dtable.shape[-2]
    sums_BTXHV = rise_HV.new_empty(batch, queries, 3, heads, units)
    for sequence, rows, q_R, k_K in _blocks(q_pos, k_pos, first if causal else None, units + 3 * heads):
        distance_RK = (q_R[:, None] - k_K).abs_()
        scaled_RK = c * distance_RK
        psi_RK = scaled_RK.log1p()
        by_c_RK = distance_RK.div_(scaled_RK.add_(1))
        x_RK = torch.div(psi_RK, _farthest(q_R, c, threshold)[:, None], out=scaled_RK)
        beyond_RVK = x_RK.new_empty(len(q_R), units, len(k_K))
        torch.gt(x_RK[:, None], kink_V1, out=beyond_RVK)
        g_RXHK = x_RK.new_empty(len(q_R), 3, heads, len(k_K))
        g_RXHK[:, 0] = dtable_BHTS[sequence, :, rows, : len(k_K)].transpose(0, 1)
        torch.mul(g_RXHK[:, 0], psi_RK[:, None], out=g_RXHK[:, 1])
        torch.mul(g_RXHK[:, 0], by_c_RK[:, None], out=g_RXHK[:, 2])
        sums_RYV = sums_BTXHV[sequence, rows].flatten(1, 2)
        torch.bmm(g_RXHK.flatten(1, 2), beyond_RVK.mT, out=sums_RYV)
    q_N = q_pos.float().expand(batch, -1).flatten()
    far_N, psi_of_far_N = torch.maximum(q_N, threshold), _farthest(q_N, c, threshold)
    g_NHV, psi_NHV, by_c_NHV = sums_BTXHV.flatten(0, 1).unbind(1)
    # x by c and by L: through the distance of the key, and through the farthest one.
    by_far_N = -(psi_NHV * rise_HV).sum((1, 2)) / psi_of_far_N**2 / (1 + c * far_N)
    dc = ((by_c_NHV * rise_HV).sum((1, 2)) / psi_of_far_N + by_far_N * far_N).sum().expand_as(c)
    dthreshold = (by_far_N * c * torch.heaviside(threshold - q_N, c.new_tensor(0.5))).sum().expand_as(c)
    # Short of a kink a unit is rise * kink, beyond it rise * x.
    g_HV, gx_HV = g_NHV.sum(0), (psi_NHV / psi_of_far_N[:, None, None]).sum(0)
    short_HV = g_HV[:, -1:] - g_HV
    dkink_W, drise_HW = torch.zeros_like(kink_W), torch.zeros_like(rise_HW)
    dkink_W[bent] = (short_HV * rise_HV).sum(0)[:-1]
    drise_HW[:, bent] = (gx_HV + short_HV * kink_V1[:, 0])[:, :-1]
    return dc, dthreshold, dkink_W, drise_HW, torch.stack((gx_HV[:, -1], g_HV[:, -1]), 1)


@_backward.register_fake
def _(dtable: Tensor, q_pos: Tensor, k_pos: Tensor, *given: Any):
    return tuple(torch.empty_like(x) for x in given[:5])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q_pos, k_pos, *ctx.options = inputs[:4]
    ctx.save_for_backward(q_pos, k_pos, *inputs[4:])


def _gradients(ctx: Any, dtable: Tensor) -> tuple[Tensor | None, ...]:
    return *(None,) * 4, *_backward(dtable, *ctx.saved_tensors, *ctx.options)


_blocked_table.register_autograd(_gradients, setup_context=_save)


def _bent(kink_W: Tensor) -> Tensor:
    """Which units have a kink. A GPU would have to be waited for; all are computed there."""
    return (kink_W >= 0).nonzero()[:, 0] if kink_W.is_cpu else torch.arange(len(kink_W), device=kink_W.device)


def _blocks(
    q_pos: Tensor, k_pos: Tensor, first: int | None, width: int
) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
    """A sequence, the rows of some of its queries, their positions, and those of the keys that they see. It
    is one sequence for all, or each where they have positions of their own.

    Args:
        first: where queries see no later key, the row of the first query among the keys; else None.
        width: how many numbers are held for each pair.
    """
    queries, keys = q_pos.shape[-1], k_pos.shape[-1]
    block = max(16, BLOCK_ELEMENTS["cpu" if q_pos.is_cpu else "cuda"] // (keys * width))
    batch = torch.broadcast_shapes(q_pos.shape[:-1], k_pos.shape[:-1]).numel()
    q_BT, k_BS = (pos.float().expand(batch, -1) for pos in (q_pos, k_pos))
    for sequence in range(batch):
        for start in range(0, queries, block):
            stop = min(start + block, queries)
            seen = keys if first is None else min(keys, first + stop)
            yield sequence, slice(start, stop), q_BT[sequence, start:stop], k_BS[sequence, :seen]
