"""Self-Extend."""

from typing import Any

import torch
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.rotary.two_ranges import TwoRanges
from zoo.recipe.fields import Positive
from zoo.registry import register


@register("self_extend")
class SelfExtend(TwoRanges):
    """RoPE with exact distances to near tokens and, beyond a window, distances between groups of tokens.

    A pair at positions i and j is turned by i - j where that is below the window W, and by
    i // G - j // G + W - W // G beyond, G the size of a group. The trained length L is so stretched to
    (L - W) G + W. In an encoder both sides are treated alike.

    For evaluation of a model trained with rope: `zoo evaluate RUN --set model.encoding=self_extend`. The
    options of rope are then those of the training run.

    Options:
        window: W, in tokens. null: a quarter of the trained length, as in the authors' code (1024 of 4096).
        group: G, in tokens. 1 is rope.

    Two products of queries and keys are made, three in an encoder: RoPE's, and one of twice the width, which
    is the far one less RoPE's. No fused kernel can do that. Where a group begins depends on the
    position itself, so that not the distance alone counts. Checked against a loop over the distances and,
    with groups of 1 or a window as long as the sequence, against rope.
    """

    formula = (
        r"\rho_{ij} = i - j \text{ for } i - j < W,"
        r"\quad \lfloor i/G \rfloor - \lfloor j/G \rfloor + W - \lfloor W/G \rfloor \text{ beyond}"
    )
    paper = "Jin et al. 2024 (arXiv:2401.01325)"
    family = "rotary"
    relative = False
    extrapolates = "yes"
    integer_positions = True
    after_training = ("window", "group")
    replaces = ("rope",)

    def __init__(
        self,
        size: Size,
        *,
        window: Positive | None = None,
        group: Positive = 8,
        **rope: Any,
    ):
        super().__init__(size, window=window, **rope)
        self.group = group
        self.relative = group == 1

    @property
    def gap(self) -> float:
        return self.window - self.window // self.group

    def shorten(self, pos: Tensor) -> Tensor:
        return torch.div(pos, self.group, rounding_mode="floor")
