"""A small network over every pair of a query and a key."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**20
"""Most hidden units that are held at a time where no gradient is needed: 4 MiB, for a processor's cache."""

Layer: TypeAlias = tuple[Tensor, Tensor | None]
"""Weight [O,F] and offset [O]."""


def pair_network(x_FN: Tensor, hidden: Layer, activate_: Callable[[Tensor], Tensor], out: Layer) -> Tensor:
    """out(activate(hidden(x))) for the F numbers of each of N pairs, [H,N], in x's dtype.

    Pairs come last: the result is as attention takes it, heads first.

    Args:
        activate_: works in place.
    """
    pairs = x_FN.shape[1]
    block = max(1, BLOCK_ELEMENTS // len(hidden[0]))
    if torch.is_grad_enabled() or x_FN.is_cuda or torch.compiler.is_compiling() or block >= pairs:
        return _linear(out, activate_(_linear(hidden, x_FN)))
    result_HN = x_FN.new_empty(len(out[0]), pairs)
    for start in range(0, pairs, block):
        some = slice(start, start + block)
        result_HN[:, some] = _linear(out, activate_(_linear(hidden, x_FN[:, some])))
    return result_HN


def _linear(layer: Layer, x_FN: Tensor) -> Tensor:
    weight, offset = (None if given is None else given.to(x_FN.dtype) for given in layer)
    if offset is None:
        return weight @ x_FN
    # A product with one number each is faster as what it is, an outer product, and in two steps: addcmul with
    # rows and columns takes three times as long.
    offset = offset[:, None]
    return (weight * x_FN).add_(offset) if len(x_FN) == 1 else torch.addmm(offset, weight, x_FN)
