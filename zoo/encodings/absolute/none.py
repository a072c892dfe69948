"""No positional encoding (NoPE)."""

from zoo.encodings.base import Encoding
from zoo.registry import register


@register("none")
class NoPE(Encoding):
    """No positional encoding: order is known from the causal mask alone.

    A decoder can still count, since the mask shows each token only those before it. An encoder cannot:
    without a mask its outputs are permuted as its inputs are, which makes it the baseline that knows no order
    at all.
    """

    formula = r"a_{ij} = \frac{q_i \cdot k_j}{\sqrt{D}}"
    paper = "Haviv et al. 2022 (arXiv:2203.16634); Kazemnejad et al. 2023 (arXiv:2305.19466)"
    family = "absolute"
    relative = True
    extrapolates = "yes"
    reads_positions = False
