"""A small network over every pair of a query and a key.

Tensors have their shape in their name: N pairs, F numbers of a pair, W hidden units, H outputs, P pairs of a
block.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_ELEMENTS = 2**20
"""Most hidden units that are held at a time: 4 MiB, for a processor's cache."""

Layer = tuple[Tensor, Tensor | None]
"""Weight [O,F] and offset [O]."""


def pair_network(x_FN: Tensor, hidden: Layer, slope: float, out: Layer) -> Tensor:
    """out(LeakyReLU(hidden(x))) for the F numbers of each of N pairs, [H,N], in x's dtype.

    Pairs come last: the result is as attention takes it, heads first.

    Args:
        slope: of the activation below 0; with 0 it is ReLU.
    """
    hidden, out = ([None if x is None else x.to(x_FN.dtype) for x in layer] for layer in (hidden, out))
    learns = torch.is_grad_enabled()
    if learns and x_FN.is_cpu:
        return _trained(x_FN, *hidden, *out, slope)
    if learns or x_FN.is_cuda or torch.compiler.is_compiling():
        return _linear(*out, F.leaky_relu_(_linear(*hidden, x_FN), slope))
    return _in_blocks(x_FN, *hidden, *out, slope)


def _linear(weight: Tensor, offset: Tensor | None, x_FN: Tensor) -> Tensor:
    if offset is None:
        return weight @ x_FN
    # A product with one number each is faster as what it is, an outer product, and in two steps: addcmul with
    # rows and columns takes three times as long.
    offset = offset[:, None]
    return (weight * x_FN).add_(offset) if len(x_FN) == 1 else torch.addmm(offset, weight, x_FN)


def _blocks(x_FN: Tensor, weight_WF: Tensor) -> Iterator[slice]:
    pairs, block = x_FN.shape[1], max(1, BLOCK_ELEMENTS // len(weight_WF))
    for start in range(0, pairs, block):
        yield slice(start, start + block)


def _in_blocks(
    x_FN: Tensor,
    weight_WF: Tensor,
    offset_W: Tensor | None,
    out_HW: Tensor,
    out_offset_H: Tensor | None,
    slope: float,
) -> Tensor:
    result_HN = x_FN.new_empty(len(out_HW), x_FN.shape[1])
    for some in _blocks(x_FN, weight_WF):
        units_WP = F.leaky_relu_(_linear(weight_WF, offset_W, x_FN[:, some]), slope)
        result_HN[:, some] = _linear(out_HW, out_offset_H, units_WP)
    return result_HN


# Operators of their own, so that torch.compile leaves them as they are.
_trained = torch.library.custom_op("zoo::pair_network", _in_blocks, mutates_args=(), device_types="cpu")
"""Of the hidden units nothing is kept for the backward pass; they are computed again."""


@_trained.register_fake
def _(x_FN: Tensor, weight_WF: Tensor, offset_W: Tensor | None, out_HW: Tensor, *others: Any) -> Tensor:
    return x_FN.new_empty(len(out_HW), x_FN.shape[1])


@torch.library.custom_op("zoo::pair_network_backward", mutates_args=(), device_types="cpu")
def _backward(
    dresult_HN: Tensor,
    x_FN: Tensor,
    weight_WF: Tensor,
    offset_W: Tensor | None,
    out_HW: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, weight, offset and out."""
    dx_FN, doffset_W = torch.empty_like(x_FN), x_FN.new_zeros(len(weight_WF))
    dweight_WF, dout_HW = torch.zeros_like(weight_WF), torch.zeros_like(out_HW)
    for some in _blocks(x_FN, weight_WF):
        x_FP, dresult_HP = x_FN[:, some], dresult_HN[:, some]
        units_WP = F.leaky_relu_(_linear(weight_WF, offset_W, x_FP), slope)
        dout_HW += dresult_HP @ units_WP.T
        dunits_WP = torch.ops.aten.leaky_relu_backward(out_HW.T @ dresult_HP, units_WP, slope, True)
        dweight_WF += dunits_WP @ x_FP.T
        doffset_W += dunits_WP.sum(1)
        dx_FN[:, some] = weight_WF.T @ dunits_WP
    return dx_FN, dweight_WF, doffset_W, dout_HW


@_backward.register_fake
def _(dresult_HN: Tensor, x_FN: Tensor, weight_WF: Tensor, offset_W: Tensor | None, out_HW: Tensor, _: float):
    doffset_W = x_FN.new_empty(len(weight_WF))
    return torch.empty_like(x_FN), torch.empty_like(weight_WF), doffset_W, torch.empty_like(out_HW)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, out_offset_H, ctx.slope = inputs
    ctx.save_for_backward(*tensors)
    ctx.has_offset = out_offset_H is not None


def _gradients(ctx: Any, dresult_HN: Tensor) -> tuple[Tensor | None, ...]:
    x_FN, weight_WF, offset_W, out_HW = ctx.saved_tensors
    dx_FN, dweight_WF, doffset_W, dout_HW = _backward(
        dresult_HN, x_FN, weight_WF, offset_W, out_HW, ctx.slope
    )
    doffset_W = None if offset_W is None else doffset_W
    return dx_FN, dweight_WF, doffset_W, dout_HW, dresult_HN.sum(1) if ctx.has_offset else None, None


_trained.register_autograd(_gradients, setup_context=_save)
