"""Attention that breaks pieces off a stick, the nearest key first (stick-breaking)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.registry import register


@register("stick_breaking")
class StickBreaking(Encoding):
    """Each key, from the nearest on, takes a share of the weight that the nearer keys have left.

    w_ij = sigmoid(z_ij) * product over j < k < i of (1 - sigmoid(z_ik)), for keys strictly before the query.
    Near keys come first, so that order is known without positions. A distant key keeps its weight however
    many keys lie between, if those score low.

    Options:
        remainder: whether the query's own value gets the rest of the stick. Without it nothing gets that,
            the weights of a query sum to less than one, and the first query attends to nothing.

    Logs are summed in float32, from the query back; published is `sb_ref.py` of
    github.com/shawntan/stickbreaking-attention, which sums in the dtype of the queries. Hidden keys take
    nothing. Weights depend on the size of the scores and not on their differences alone: biases that leave
    out a number are refused. Checked against the published code, a loop over the formula and, with constant
    scores, the geometric distribution.
    """

    formula = r"w_{ij} = \sigma(z_{ij}) \prod_{j < k < i} \bigl(1 - \sigma(z_{ik})\bigr),\qquad j < i"
    paper = "Tan, Yang, Courville, Panda, Shen 2025 (arXiv:2410.17980, section 2)"
    family = "weights"
    encoder = False
    relative = True
    extrapolates = "yes"
    reads_positions = False

    def __init__(self, size: Size, *, remainder: bool = False):
        super().__init__(size)
        self.remainder = remainder

    def weights(self, logits: Tensor, context: AttentionContext) -> Tensor:
        row = torch.arange(context.num_queries, device=logits.device)[:, None] + context.query_offset
        own = torch.arange(context.num_keys, device=logits.device) == row
        z = logits.masked_fill(own, -torch.inf)
        # log(1 - sigmoid(z)) = -softplus(z) and log sigmoid(z) = z - softplus(z).
        taken = F.softplus(z).flip(-1).cumsum(-1).flip(-1)
        weights = (z - taken).exp()
        if not self.remainder:
            return weights
        left = (-taken[..., :1]).exp()
        return torch.where(own & (logits > -torch.inf), left, weights)
