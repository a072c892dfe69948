"""Data-adaptive positional encoding (DAPE).

Shapes in names: B batch, T queries, S keys, N pairs of a query and a key, P pairs of a block, H heads,
F numbers of a pair (H or 2H), W hidden units.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import AttentionContext, Encoding, Size
from zoo.encodings.wrapper import Wrapper
from zoo.fields import Positive
from zoo.registry import register

SLOPE = 0.01
"""Of the hidden layer's activation below 0."""
BLOCK_ELEMENTS = 2**20
"""Most hidden units that are held at a time: 4 MiB, for a processor's cache."""
REFUSED = ("embed", "read", "rotate", "score", "logits", "value")


@register("dape")
class DAPE(Wrapper):
    """An additive bias is adapted to the content, by a small network over the scores of all heads.

    scores = A + B + MLP([A; B]), with A = q k^T / sqrt(D), in a list with all that the others add, and B the
    bias of another encoding. For each query and key the MLP takes the 2H numbers of all heads to H: W2
    LeakyReLU(W1 [A; B] + b1) + b2, with slope 0.01 below 0. Each layer has its own MLP, and its own instance
    of what it wraps.

    Options:
        of: an encoding that adds a bias and does nothing else, or `none`: B is 0, and the MLP takes A alone.
            The authors' FIRE in it is `{name: fire, activation: leaky_relu}`.
        hidden: the width of the MLP.

    Scores are computed in float32 and their table is written out, on a GPU `hidden` times as large in
    between: slow, and for short sequences. For decoders only, as published. The second version's convolution
    along the keys is left out: there a score depends on whether later tokens have been computed yet, so that
    decoding with a cache is another function than training. Checked against a loop over the formula.
    """

    formula = (
        r"a = A + B + W_2 \operatorname{LeakyReLU}(W_1 [A; B] + c_1) + c_2,"
        r"\qquad A = \frac{q k^\top}{\sqrt{D}}"
    )
    paper = "Zheng et al. 2024 (arXiv:2405.14722)"
    family = "contextual"
    encoder = False
    per_layer = True

    def __init__(self, size: Size, *, of: Encoding, hidden: Positive = 32):
        super().__init__(size, of)
        others = [hook for hook in REFUSED if of.uses(hook)]
        if others:
            raise ValueError(
                f"{of.name!r} does more than add a bias (it uses {', '.join(others)}): dape adapts biases "
                f"and `none` only"
            )
        self.per_layer = True
        heads = size.num_heads
        self.inner = nn.Linear(2 * heads if of.uses("bias") else heads, hidden)
        self.outer = nn.Linear(hidden, heads)

    def uses(self, hook: str) -> bool:
        return hook == "logits" or (hook == "positions" and self.of.uses("positions"))

    def logits(self, logits: Tensor, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        heads, dtype = logits.shape[1], logits.dtype
        input_FBTS = logits.transpose(0, 1)
        if self.of.uses("bias"):
            bias = self.of.bias_table(context, heads).to(dtype)
            input_FBTS = torch.cat((input_FBTS, bias.expand_as(logits).transpose(0, 1)))
            logits = logits + bias
        # A bias of -1000.4 is -1000 in bf16: the scores stay in float32 under autocast.
        with torch.autocast(logits.device.type, enabled=False):
            weights = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
            change_HN = _network(input_FBTS.flatten(1), *(weight.to(dtype) for weight in weights))
        return logits + change_HN.view_as(logits.transpose(0, 1)).transpose(0, 1)


def _network(
    x_FN: Tensor, inner_WF: Tensor, inner_offset_W: Tensor, outer_HW: Tensor, outer_offset_H: Tensor
) -> Tensor:
    """outer(LeakyReLU(inner(x))) for the F numbers of each of N pairs, [H,N]: pairs come last, so that the
    result is as attention takes it, heads first."""
    weights = inner_WF, inner_offset_W, outer_HW, outer_offset_H
    if torch.is_grad_enabled() and x_FN.is_cpu:
        return _trained(x_FN, *weights)
    if torch.is_grad_enabled() or x_FN.is_cuda or torch.compiler.is_compiling():
        return torch.addmm(outer_offset_H[:, None], outer_HW, _units(x_FN, inner_WF, inner_offset_W))
    return _in_blocks(x_FN, *weights)


def _units(x_FP: Tensor, inner_WF: Tensor, inner_offset_W: Tensor) -> Tensor:
    return F.leaky_relu_(torch.addmm(inner_offset_W[:, None], inner_WF, x_FP), SLOPE)


def _blocks(x_FN: Tensor, inner_WF: Tensor) -> Iterator[slice]:
    pairs, block = x_FN.shape[1], max(1, BLOCK_ELEMENTS // len(inner_WF))
    for start in range(0, pairs, block):
        yield slice(start, start + block)


def _in_blocks(
    x_FN: Tensor, inner_WF: Tensor, inner_offset_W: Tensor, outer_HW: Tensor, outer_offset_H: Tensor
) -> Tensor:
    result_HN = x_FN.new_empty(len(outer_HW), x_FN.shape[1])
    for some in _blocks(x_FN, inner_WF):
        units_WP = _units(x_FN[:, some], inner_WF, inner_offset_W)
        result_HN[:, some] = torch.addmm(outer_offset_H[:, None], outer_HW, units_WP)
    return result_HN


# Operators of their own, so that torch.compile leaves them as they are.
_trained = torch.library.custom_op("zoo::dape_network", _in_blocks, mutates_args=(), device_types="cpu")
"""Of the hidden units nothing is kept for the backward pass; they are computed again."""


@_trained.register_fake
def _(x_FN: Tensor, inner_WF: Tensor, inner_offset_W: Tensor, outer_HW: Tensor, _: Tensor) -> Tensor:
    return x_FN.new_empty(len(outer_HW), x_FN.shape[1])


@torch.library.custom_op("zoo::dape_network_backward", mutates_args=(), device_types="cpu")
def _backward(
    dresult_HN: Tensor, x_FN: Tensor, inner_WF: Tensor, inner_offset_W: Tensor, outer_HW: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, the hidden layer and the last one's weight."""
    dx_FN, dinner_offset_W = torch.empty_like(x_FN), torch.zeros_like(inner_offset_W)
    dinner_WF, douter_HW = torch.zeros_like(inner_WF), torch.zeros_like(outer_HW)
    for some in _blocks(x_FN, inner_WF):
        x_FP, dresult_HP = x_FN[:, some], dresult_HN[:, some]
        units_WP = _units(x_FP, inner_WF, inner_offset_W)
        douter_HW += dresult_HP @ units_WP.T
        dunits_WP = torch.ops.aten.leaky_relu_backward(outer_HW.T @ dresult_HP, units_WP, SLOPE, True)
        dinner_WF += dunits_WP @ x_FP.T
        dinner_offset_W += dunits_WP.sum(1)
        dx_FN[:, some] = inner_WF.T @ dunits_WP
    return dx_FN, dinner_WF, dinner_offset_W, douter_HW


@_backward.register_fake
def _(dresult_HN: Tensor, *given: Tensor):
    return tuple(torch.empty_like(x) for x in given)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _gradients(ctx: Any, dresult_HN: Tensor) -> tuple[Tensor, ...]:
    return *_backward(dresult_HN, *ctx.saved_tensors), dresult_HN.sum(1)


_trained.register_autograd(_gradients, setup_context=_save)
