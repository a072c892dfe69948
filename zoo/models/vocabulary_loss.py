"""Cross-entropy over a vocabulary that never holds all logits.

The logits of some tokens at a time become their loss and, in training, at once the gradients of hidden states
and weight; the backward pass only scales these. Compare Hsu et al. 2024 (arXiv:2410.10989, 3.2).

Tensors have their shape in their name: N tokens, E model width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.data.blocks import NOT_SCORED

PART_ELEMENTS = {"cpu": 2**23, "cuda": 2**27}
"""Logits held at a time: many on a GPU, whose kernels are large."""
SLICE_ELEMENTS = 2**19
"""Logits in float32 at a time on a CPU, which stay in its cache."""


def summed_loss(hidden: Tensor, weight_VE: Tensor, targets: Tensor) -> Tensor:
    """The sum of the losses in nats of `hidden` [...,E] at `targets` [...], int64, as a scalar in float32 (in
    float64 for such inputs). Logits and their gradients are as under autocast, softmax and sums in float32.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        # The weight stays in float32, as its gradient is the sum over all tokens.
        hidden = hidden.to(torch.get_autocast_dtype(device))
    learns = torch.is_grad_enabled() and (hidden.requires_grad or weight_VE.requires_grad)
    return _summed_loss(hidden.flatten(0, -2), weight_VE, targets.flatten(), learns)[0]


def losses(hidden: Tensor, weight_VE: Tensor, targets: Tensor) -> Tensor:
    """The loss in nats of `hidden` [...,E] at each of `targets` [...], 0 where nothing is scored. For
    evaluation: where gradients are asked for, all logits are kept after all."""
    part = max(1, part_elements(hidden.device.type) // weight_VE.shape[0])
    of_parts = [
        token_losses(F.linear(some, weight_VE), wanted)
        for some, wanted in zip(hidden.flatten(0, -2).split(part), targets.flatten().split(part), strict=True)
    ]
    return torch.cat(of_parts).view_as(targets)


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss in nats at every position, as targets [...], from logits [...,V]; 0 where not scored."""
    each = F.cross_entropy(
        logits.flatten(0, -2).float(), targets.flatten(), reduction="none", ignore_index=NOT_SCORED
    )
    return each.view_as(targets)


def part_elements(device: str) -> int:
    """The number of logits held at a time on a kind of device."""
    return PART_ELEMENTS["cpu" if device == "cpu" else "cuda"]


# An operator of its own, so that torch.compile leaves it as it is.
@torch.library.custom_op("zoo::summed_loss", mutates_args=())
def _summed_loss(
    hidden_NE: Tensor, weight_VE: Tensor, targets_N: Tensor, learns: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, and the gradients of hidden states and weight by it; empty if nothing learns.

    Products are in the precision of the hidden states."""
    weight_VE = weight_VE.to(hidden_NE.dtype)
    scored = targets_N != NOT_SCORED
    given, rows = hidden_NE[scored], targets_N[scored]
    wide = torch.promote_types(hidden_NE.dtype, torch.float32)
    total = hidden_NE.new_zeros((), dtype=wide)
    dgiven = torch.empty_like(given) if learns else given.new_empty(0)
    dweight = torch.empty_like(weight_VE, dtype=wide) if learns else given.new_empty(0, dtype=wide)
    vocabulary = weight_VE.shape[0]
    device = hidden_NE.device.type
    part = max(1, part_elements(device) // vocabulary)
    step = max(1, SLICE_ELEMENTS // vocabulary) if device == "cpu" else part
    table = given.new_empty(min(step, len(given)), vocabulary, dtype=wide)
    for start in range(0, len(given), part):
        some = slice(start, start + part)
        logits = given[some] @ weight_VE.T
        for first in range(0, len(logits), step):
            piece = logits[first : first + step]
            wanted = rows[some][first : first + step, None]
            p = table[: len(piece)].copy_(piece)
            # The likeliest token's probability is never near 0, so that its logarithm gives the normalizer.
            total += (p.amax(-1, keepdim=True) - p.gather(1, wanted)).sum()
            torch._softmax(p, -1, False, out=p)
            total -= p.amax(-1).log().sum()
            if learns:
                # Softmax less one at the target, over the logits.
                piece.copy_(p.scatter_add_(1, wanted, p.new_full((), -1.0).expand_as(wanted)))
        if learns:
            torch.mm(logits, weight_VE, out=dgiven[some])
            of_part = logits.T @ given[some]
            # The first part needs neither zeros nor a sum.
            dweight.add_(of_part) if start else dweight.copy_(of_part)
    if not len(given):
        dweight.zero_()
    if not learns:
        return total, dgiven, dweight
    dhidden = torch.zeros_like(hidden_NE)
    dhidden[scored] = dgiven
    return total, dhidden, dweight


@_summed_loss.register_fake
def _(hidden_NE: Tensor, weight_VE: Tensor, targets_N: Tensor, learns: bool):
    wide = torch.promote_types(hidden_NE.dtype, torch.float32)
    dhidden = torch.empty_like(hidden_NE) if learns else hidden_NE.new_empty(0)
    dweight = torch.empty_like(weight_VE, dtype=wide) if learns else hidden_NE.new_empty(0, dtype=wide)
    return hidden_NE.new_empty((), dtype=wide), dhidden, dweight


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx: Any, dloss: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    dhidden, dweight = ctx.saved_tensors
    return dhidden * dloss, dweight * dloss, None, None


_summed_loss.register_autograd(_gradients, setup_context=_save)
