"""Sparse attention weights (entmax)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import AboveOne
from zoo.registry import register

STEPS = 24
"""Newton steps at most. 14 are enough for 65,536 equal scores, from which the start is farthest."""


@register("entmax")
class Entmax(Encoding):
    """Keys with a low score get a weight of exactly 0, as in a softmax none does.

    w_j = max(0, (alpha - 1) z_j - tau)^(1 / (alpha - 1)), with the tau of each query for which the weights
    sum to one. Keys that score low take nothing from the others, however many there are.

    Options:
        alpha: 2 is sparsemax; towards 1 it becomes the softmax.

    Order is not read: combine it with an encoding of positions. `model.logit_scale` multiplies z.

    tau is found in float32 by Newton's method, which converges from below for every alpha, as in AdaSplash,
    the kernel of the later papers. The package `entmax` sorts the scores for 1.5 and 2 and bisects otherwise:
    the weights agree to 5e-6. A masked key is never in the support; a mask of -1e9 spoils the sums of sorted
    scores. The gradient is that of the solution, not of the steps. Checked against a bisection in float64
    and, for alpha = 2, the projection on the simplex.
    """

    formula = (
        r"w_{ij} = \bigl[(\alpha - 1)\, z_{ij} - \tau_i\bigr]_+^{1/(\alpha - 1)},"
        r"\qquad \sum_j w_{ij} = 1"
    )
    paper = "Peters, Niculae, Martins 2019 (arXiv:1905.05702)"
    family = "weights"
    relative = True
    reads_positions = False
    needs_offset = False

    def __init__(self, size: Size, *, alpha: Annotated[AboveOne, Field(le=2)] = 1.5):
        super().__init__(size)
        self.alpha = alpha

    def weights(self, logits: Tensor, context: AttentionContext) -> Tensor:
        largest = logits.detach().amax(-1, keepdim=True)
        hidden = largest == -torch.inf
        # The largest weight is at most 1, so that tau is at least -1, where the steps begin. Lower scores
        # have no weight: they may be raised to -1, also from -inf.
        z = ((self.alpha - 1) * (logits - largest.masked_fill(hidden, 0.0))).clamp(min=-1.0)
        power = 1 / (self.alpha - 1)
        with torch.no_grad():
            tau = torch.full_like(largest, -1.0)
            for _ in range(STEPS):
                excess, slope = _sum(z, tau, power)
                tau = tau + excess / slope.clamp(min=1e-30)
                if z.is_cpu and not torch.compiler.is_compiling() and bool((excess < 1e-6).all()):
                    break
            slope = _sum(z, tau, power)[1].clamp(min=1e-30)
        # One more step, with its gradient: that of a sum which stays one.
        tau = tau + ((z - tau).relu().pow(power).sum(-1, keepdim=True) - 1) / slope
        return (z - tau).relu().pow(power).masked_fill(hidden, 0.0)


def _sum(z: Tensor, tau: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """The sum of the weights less one, and how fast it falls as tau rises."""
    x = (z - tau).relu()
    lower = x.pow(power - 1) if power > 1 else (x > 0).to(x.dtype)
    return (lower * x).sum(-1, keepdim=True) - 1, power * lower.sum(-1, keepdim=True)
