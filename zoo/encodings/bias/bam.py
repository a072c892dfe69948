"""Bayesian attention mechanism (BAM)."""

import torch
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.bias.alibi import official_slopes
from zoo.registry import register

SMALLEST = 1e-5
"""Added to a distance, so that its power has a gradient at 0."""


@register("bam")
class BAM(Encoding):
    """Scores have the logarithm of a generalized normal distribution over distance, learned for each head.

    bias = -(|j - i - c| + 1e-5)^beta e^alpha with the location c = e^mu - e^-mu. It starts as ALiBi: beta is
    1, alpha the logarithm of ALiBi's slope, and mu 0. All layers share the numbers.

    Options:
        location: whether mu is learned. By default it is 0, as in the authors' code.

    An exponent beta below 1 lets a head look farther back; one below 0, which is possible, makes it look
    away from near tokens. In an encoder both sides fall alike as long as mu is 0. Checked against a loop over
    the formula and, at its start, against alibi; and once against `AttentionPrior` of the authors' code
    (github.com/ArthurSBianchessi/BAM, `models/bam.py`).
    """

    formula = r"b_{ij} = -\bigl(|j - i - (e^{\mu_h} - e^{-\mu_h})| + 10^{-5}\bigr)^{\beta_h} e^{\alpha_h}"
    paper = "Bianchessi et al. 2025 (arXiv:2505.22842)"
    family = "bias"
    relative = True
    extrapolates = "yes"
    distance_only = True

    def __init__(self, size: Size, *, location: bool = False):
        super().__init__(size)
        self.beta = nn.Parameter(torch.ones(size.num_heads))
        self.alpha = nn.Parameter(torch.tensor(official_slopes(size.num_heads)).log())
        self.location = location
        if location:
            self.mu = nn.Parameter(torch.zeros(size.num_heads))

    def bias(self, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        offset = (k - q).float()
        if self.location:
            mu = self.mu[head].float()
            offset = offset - (mu.exp() - (-mu).exp())
        distance = offset.abs() + SMALLEST
        return -(distance ** self.beta[head].float()) * self.alpha[head].float().exp()
