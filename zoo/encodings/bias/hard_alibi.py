"""Hard ALiBi."""

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.recipe.fields import Count
from zoo.registry import register


@register("hard_alibi")
class HardALiBi(Encoding):
    """Each of the first heads sees the last tokens alone, one more than the head before it.

    Head h = 0 .. m-1 attends to keys at distances 0 .. h, and so to the last h + 1 tokens, its own included.
    The other heads see all keys, without positions. In an encoder a head sees h tokens on each side.

    Options:
        masked: m, the number of heads that see the last tokens alone. null: half of the heads, as in the
            authors' experiments (8 of 16).

    The authors add the smallest finite number once for the causal mask and once for the head's. That sum
    overflows in fp16. Here the bias of a hidden pair is -inf. Checked against a loop over the definition, and
    once against the attention of the authors' code (github.com/sjelassi/transformers_ssm_copy,
    `hard_alibi_model.py`).
    """

    formula = (
        r"b_{ij} = 0 \text{ where } |i-j| \le h \text{ or } h \ge m,\quad -\infty \text{ elsewhere},"
        r"\qquad h = 0, 1, \ldots"
    )
    paper = "Jelassi, Brandfonbrener, Kakade, Malach 2024 (arXiv:2402.01032)"
    family = "bias"
    relative = True
    extrapolates = "yes"
    distance_only = True

    def __init__(self, size: Size, *, masked: Count | None = None):
        super().__init__(size)
        masked = size.num_heads // 2 if masked is None else masked
        if masked > size.num_heads:
            raise ValueError(f"masked is {masked}, but the model has {size.num_heads} heads")
        farthest = torch.arange(size.num_heads).float()
        farthest[masked:] = torch.inf
        self.register_buffer("farthest", farthest, persistent=False)

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.where((q - k).abs() > self.farthest[head], -torch.inf, 0.0)
