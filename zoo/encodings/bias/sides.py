"""Heads of an encoder that look only back or only ahead."""

from typing import Literal

import torch
from torch import Tensor

from zoo.encodings.base import Size

Form = Literal["symmetric", "one_sided"]


def sides(size: Size, form: Form) -> Tensor:
    """The side of each head, [H]: 1 looks back, -1 ahead, 0 to both sides.

    `one_sided` gives half of an encoder's heads to each side, by turns, so that heads 2h and 2h + 1 may have
    one strength: a bias that is equal on both sides cannot tell left from right
    (github.com/ofirpress/attention_with_linear_biases, issue 5). A decoder has one side, under its mask.

    Raises:
        ValueError: the number of heads is odd.
    """
    side = torch.zeros(size.num_heads)
    if form == "one_sided" and not size.causal:
        if size.num_heads % 2:
            raise ValueError(f"form one_sided gives half of the heads to each side; {size.num_heads} is odd")
        side[0::2], side[1::2] = 1, -1
    return side


def hide_other_side(bias: Tensor, side: Tensor, back: Tensor) -> Tensor:
    """`bias`, and -inf where a key lies on the side that a head does not look to, `back` tokens before."""
    return torch.where(side * back < 0, -torch.inf, bias)
