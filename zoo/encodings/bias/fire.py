"""Functional interpolation for relative positions (FIRE).

Tensors have their shape in their name: B sequences, T queries, S keys, P pairs of both, N queries of all
sequences; H heads, W hidden units, U those with a kink, V those and the line; X the three sums of the
backward pass.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zoo.encodings.base import Encoding, Size, Span, per_query_and_key
from zoo.field_types import AboveZero, Positive
from zoo.registry import register

EPSILON = 1e-6
"""Added to the divisor, which is zero where training has brought c or L to zero."""

BLOCK_ELEMENTS = 2**26
"""Hidden units of pairs that are held at once in training elsewhere than on a CPU."""


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
    backward pass but computed again; on a CPU by loops that are compiled at first use, which takes some four
    seconds, and kept beside this file. Checked against a loop over the paper's formula.
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
            if span.q_pos.is_cpu:
                return _table_on_cpu(*where, span.first, span.causal, *given)
            # A compiler decides itself what it computes again.
            return (_table if torch.compiler.is_compiling() else _recomputed_table)(*where, *given)

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


def _recomputed_table(q_pos: Tensor, k_pos: Tensor, *given: Tensor) -> Tensor:
    """`_table`, whose hidden units are not kept for the backward pass but computed again, a block of queries
    at a time."""
    rows = max(1, BLOCK_ELEMENTS // (k_pos.numel() * len(given[2])))
    options = {"use_reentrant": False, "preserve_rng_state": False}
    parts = [checkpoint(_table, q, k_pos, *given, **options) for q in q_pos.split(rows, -1)]
    return torch.cat(parts, -2)


def _compiled(**options: Any) -> Callable[[Callable], Callable]:
    """At first use, for all later processes too if the result can be kept beside this file or in the user's
    cache folder (https://numba.readthedocs.io, NUMBA_CACHE_DIR)."""

    def compiled(function: Callable) -> Callable:
        try:
            return numba.njit(function, cache=True, **options)
        except RuntimeError:  # it can be kept nowhere
            return numba.njit(function, **options)

    return compiled


# On a CPU one pass over the pairs, compiled, takes a third of the time of PyTorch's operations, each of which
# writes a table. Sums may be reordered, so that vector instructions can be used; NaN and infinity stay exact.
LOOP = {"parallel": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "arcp", "nsz"}}


@_compiled()
def _sequence_and_query(n: int, queries: int, keys: int, first: int) -> tuple[int, int, int]:
    """The n-th row of the table, and how many keys it sees: rows from both ends in turn, so that threads,
    which take neighbours, have as much to do where a query sees no later key."""
    # prange counts without a sign, which beside numbers with one would be float64.
    sequence, t = divmod(np.int64(n), queries)
    t = queries - 1 - t // 2 if t % 2 else t // 2
    return sequence, t, min(keys, first + t + 1)


@_compiled(**LOOP)
def _write_table(q_BT, k_BS, first, c, threshold, kink_U, network_HV, table_BHTS):
    """The bias of the keys up to the query's own, `first` rows into the keys, and 0 beyond."""
    (batch, queries), keys, (heads, units) = q_BT.shape, k_BS.shape[1], network_HV.shape
    for n in numba.prange(batch * queries):
        b, t, seen = _sequence_and_query(n, queries, keys, first)
        q, k_S = q_BT[b, t], k_BS[b]
        far = math.log(1 + c * max(q, threshold)) + EPSILON
        x_S = np.empty(seen, np.float32)
        for s in range(seen):
            # In float64, as 1 + c |i - j| would be rounded in float32 where c is small.
            x_S[s] = math.log(1 + c * abs(q - k_S[s])) / far
        for h in range(heads):
            row_S = table_BHTS[b, h, t]
            slope, offset = network_HV[h, units - 2], network_HV[h, units - 1]
            for s in range(seen):
                row_S[s] = slope * x_S[s] + offset
            for u in range(units - 2):
                rise, kink = network_HV[h, u], kink_U[u]
                for s in range(seen):
                    row_S[s] += rise * max(x_S[s], kink)
            row_S[seen:] = 0


@_compiled(**LOOP)
def _sum_between_kinks(dtable_BHTS, q_BT, k_BS, first, c, threshold, kink_U, sums_BTXHV):
    """For each query and head, sums over the keys with as many kinks still ahead of them, x <= kink: of the
    gradient g, of g psi(i - j), and of g times the derivative of psi(i - j) by c."""
    (batch, queries), keys, heads = q_BT.shape, k_BS.shape[1], dtable_BHTS.shape[1]
    for n in numba.prange(batch * queries):
        b, t, seen = _sequence_and_query(n, queries, keys, first)
        q, k_S = q_BT[b, t], k_BS[b]
        far = math.log(1 + c * max(q, threshold)) + EPSILON
        psi_S, by_c_S = np.empty(seen, np.float32), np.empty(seen, np.float32)
        for s in range(seen):
            distance = abs(q - k_S[s])
            scaled = 1 + c * distance
            psi_S[s], by_c_S[s] = math.log(scaled), distance / scaled
        kinks_S = np.zeros(seen, np.int32)
        for kink in kink_U:
            psi_of_kink = np.float32(kink * far)
            for s in range(seen):
                kinks_S[s] += np.int32(psi_S[s] <= psi_of_kink)
        sums_XHV = sums_BTXHV[b, t]
        sums_XHV[:] = 0
        start = 0
        while start < seen:
            # Where positions ascend, the keys of one column lie side by side.
            column, stop = kinks_S[start], start + 1
            while stop < seen and kinks_S[stop] == column:
                stop += 1
            for h in range(heads):
                g_S = dtable_BHTS[b, h, t]
                of_g = of_psi = of_c = np.float32(0)
                for s in range(start, stop):
                    of_g += g_S[s]
                    of_psi += g_S[s] * psi_S[s]
                    of_c += g_S[s] * by_c_S[s]
                sums_XHV[0, h, column] += of_g
                sums_XHV[1, h, column] += of_psi
                sums_XHV[2, h, column] += of_c
            start = stop


def _run(loop: Any, *given: Tensor | int | float) -> None:
    """On as many threads as PyTorch uses."""
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    if torch.get_num_threads() != threads:
        # Once in a process: numba, when it starts its threads, sets OpenMP's number, which is PyTorch's too.
        torch.set_num_threads(threads)
    loop(*(x.detach().numpy() if isinstance(x, Tensor) else x for x in given))


def _positions(q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
    """[B,T] and [B,S], with one sequence where all have the same positions."""
    batch = torch.broadcast_shapes(q_pos.shape[:-1], k_pos.shape[:-1]).numel()
    return tuple(pos.float().expand(batch, -1).contiguous() for pos in (q_pos, k_pos))


# Operators of their own, so that torch.compile leaves them as they are.
@torch.library.custom_op("zoo::fire_table", mutates_args=(), device_types="cpu")
def _table_on_cpu(
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
    """`_table` of the pairs that the causal mask leaves; 0 elsewhere. Nothing of a pair is kept for the
    backward pass."""
    table = _empty_table(q_pos, k_pos, rise_HW)
    q_BT, k_BS = _positions(q_pos, k_pos)
    bent = _bent(kink_W)
    network_HV = torch.cat((rise_HW[:, bent], line_H2), 1)
    table_BHTS = table.view(-1, *table.shape[-3:])
    first = first if causal else k_BS.shape[1]
    _run(_write_table, q_BT, k_BS, first, c.item(), threshold.item(), kink_W[bent], network_HV, table_BHTS)
    return table


def _empty_table(q_pos: Tensor, k_pos: Tensor, rise_HW: Tensor) -> Tensor:
    """[H,T,S], or [B,H,T,S] where sequences have positions of their own."""
    batch = torch.broadcast_shapes(q_pos.shape[:-1], k_pos.shape[:-1])
    return rise_HW.new_empty(*batch, len(rise_HW), q_pos.shape[-1], k_pos.shape[-1])


@_table_on_cpu.register_fake
def _(q_pos: Tensor, k_pos: Tensor, first: int, causal: bool, *given: Tensor) -> Tensor:
    return _empty_table(q_pos, k_pos, given[3])


@torch.library.custom_op("zoo::fire_table_backward", mutates_args=(), device_types="cpu")
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
    """The gradients of c, L and the network, all from the sums of `_sum_between_kinks`."""
    bent = _bent(kink_W)
    rise_HV = torch.cat((rise_HW[:, bent], line_H2[:, :1]), 1)
    q_BT, k_BS = _positions(q_pos, k_pos)
    dtable_BHTS = dtable.reshape(-1, *dtable.shape[-3:]).contiguous()
    first = first if causal else k_BS.shape[1]
    sums_BTXHV = rise_HV.new_empty(*q_BT.shape, 3, *rise_HV.shape)
    where = q_BT, k_BS, first, c.item(), threshold.item()
    _run(_sum_between_kinks, dtable_BHTS, *where, kink_W[bent], sums_BTXHV)
    # From the last kink on: of the keys beyond each, and in the end of all, which lie on the line.
    sums_BTXHV = sums_BTXHV.cumsum(-1)
    q_N = q_BT.flatten()
    far_N, psi_of_far_N = torch.maximum(q_N, threshold), _farthest(q_N, c, threshold)
    g_NHV, psi_NHV, by_c_NHV = sums_BTXHV.flatten(0, 1).unbind(1)
    # x by c and by L: through the distance of the key, and through the farthest one.
    by_far_N = -(psi_NHV * rise_HV).sum((1, 2)) / psi_of_far_N**2 / (1 + c * far_N)
    dc = ((by_c_NHV * rise_HV).sum((1, 2)) / psi_of_far_N + by_far_N * far_N).sum().expand_as(c)
    dthreshold = (by_far_N * c * torch.heaviside(threshold - q_N, c.new_tensor(0.5))).sum().expand_as(c)
    # Short of a kink a unit is rise * kink, beyond it rise * x.
    g_HV, gx_HV = g_NHV.sum(0), (psi_NHV / psi_of_far_N[:, None, None]).sum(0)
    short_HU = (g_HV[:, -1:] - g_HV)[:, :-1]
    dkink_W, drise_HW = torch.zeros_like(kink_W), torch.zeros_like(rise_HW)
    dkink_W[bent] = (short_HU * rise_HV[:, :-1]).sum(0)
    drise_HW[:, bent] = gx_HV[:, :-1] + short_HU * kink_W[bent]
    return dc, dthreshold, dkink_W, drise_HW, torch.stack((gx_HV[:, -1], g_HV[:, -1]), 1)


@_backward.register_fake
def _(dtable: Tensor, q_pos: Tensor, k_pos: Tensor, *given: Any):
    return tuple(torch.empty_like(x) for x in given[:5])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q_pos, k_pos, *ctx.options = inputs[:4]
    ctx.save_for_backward(q_pos, k_pos, *inputs[4:])


def _gradients(ctx: Any, dtable: Tensor) -> tuple[Tensor | None, ...]:
    return *(None,) * 4, *_backward(dtable, *ctx.saved_tensors, *ctx.options)


_table_on_cpu.register_autograd(_gradients, setup_context=_save)


def _bent(kink_W: Tensor) -> Tensor:
    """The units with a kink, from the last one on."""
    order_W = kink_W.argsort(descending=True)
    return order_W[kink_W[order_W] >= 0]
