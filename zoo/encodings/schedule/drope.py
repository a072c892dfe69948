"""Dropped positional embeddings (DroPE)."""

import math

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import Factor, NotNegative
from zoo.registry import register


@register("drope")
class DroPE(Encoding):
    """No positions, in a model that began its training with some; sharper scores beyond the trained length.

    A schedule: train with another encoding, usually rope, for most of the steps; continue without positions
    for the rest (`init_from` the first run; 12.5 % of all steps in the paper). In training this is `none`. At
    evaluation queries are multiplied by beta = 1 + scale ln(s), where s is by how much the trained length L
    is exceeded: more keys would otherwise flatten the attention.

    Options:
        scale: the paper's c; 0.412 for models trained from scratch there, 0.103 for SmolLM. 0: no scaling.
        factor: s, the same for every query, as in the paper, where it is the tested length over L. null:
            each query's own, max(1, n / L) for the n-th token of a sequence, which no later token changes,
            so that it holds while decoding with a cache.

    Both may be set after training (`zoo evaluate RUN --set model.encoding.factor=4`). Checked against a loop
    over the formula.
    """

    formula = (
        r"a_{ij} = \beta\, \frac{q_i \cdot k_j}{\sqrt{D}},"
        r"\qquad \beta = 1 + c \ln \max\Bigl(1, \frac{T}{L}\Bigr)"
        r" \text{ at evaluation, } 1 \text{ in training}"
    )
    paper = "Gelberg, Eguchi, Akiba, Cetin 2025 (arXiv:2512.12167)"
    family = "schedule"
    encoder = False
    relative = True
    extrapolates = "yes"
    reads_positions = False
    after_training = ("scale", "factor")

    def __init__(self, size: Size, *, scale: NotNegative = 0.412, factor: Factor | None = None):
        super().__init__(size)
        self.scale = scale
        self.factor = factor

    def uses(self, hook: str) -> bool:
        return super().uses(hook) and (hook != "rotate" or self.scale != 0)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        if self.training or self.scale == 0:
            return q, k
        if self.factor is not None:
            return q * (1 + self.scale * math.log(self.factor)), k
        return (q * context.once(self, context.q_pos, lambda _: self._sharpness(context))).to(q.dtype), k

    def _sharpness(self, context: AttentionContext) -> Tensor:
        """beta of each query, [T,1] or [B,1,T,1]."""
        count = context.token_counts()
        tokens = count if count.dim() == 1 else count[:, None]
        beyond = (tokens.to(torch.float32) / self.size.length).clamp(min=1)
        return (1 + self.scale * beyond.log())[..., None]
