"""Position encoding by accumulated Householder transformations (PaTH).

Shapes in names: B batch, T queries, S keys, H heads, D head width, N blocks of K keys.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size, Span
from zoo.field_types import Positive
from zoo.registry import register

BLOCK = 32
"""Keys whose transformations are multiplied in one go; larger blocks lose digits where tokens are alike."""


@register("path")
class PaTH(Encoding):
    """On its way to the query a key passes the reflection of every token between them.

    score = k_j . H_(j+1) H_(j+2) ... H_i q_i / sqrt(D) instead of k_j . q_i / sqrt(D), with
    H_t = 1 - beta_t w_t w_t^T and beta_t = 2 sigmoid(b . x_t + c), where x_t is the input of the attention
    layer. w_t is x_t through a projection of low rank, a convolution over a token and those just before it,
    SiLU, and the division by its length (the root of its square + 1e-6). Each head has its own w and beta,
    each layer its own weights.

    Options:
        rank: width of the projection on its way to w.
        kernel: tokens that the convolution sees.

    It completes the plain product, and so cannot be combined with an encoding that rotates. PaTH-FoX as the
    authors compute it is `[path, {name: fox, scaled: true}]`: they add the forget gates before the division
    by sqrt(D); `[path, fox]` adds them after it, as FoX does. All weights are drawn from N(0, 0.02), the
    convolution's taps too, as in the authors' model; c starts at 0. All of it is computed in float32. Padding
    reflects nothing, and a window hides keys but keeps their reflections. Positions are not read.
    Cost grows with T S, by D + 32 products for each pair. Checked against a loop that applies one H at a
    time, with forget gates and without; w and beta follow the authors' layer
    (github.com/fla-org/flash-linear-attention, PaTHAttention).
    """

    paper = "Yang et al. 2025 (arXiv:2505.16381)"
    family = "contextual"
    learns = "layers * (67 * width + (width + 1) * heads)"
    encoder = False
    relative = True
    extrapolates = "yes"
    plain_product = True
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, rank: Positive = 32, kernel: Positive = 3):
        super().__init__(size)
        self.rank = rank
        self.down = nn.Parameter(0.02 * torch.randn(rank, size.d_model))
        self.up = nn.Parameter(0.02 * torch.randn(size.d_model, rank))
        self.taps = nn.Parameter(0.02 * torch.randn(size.d_model, 1, kernel))
        self.strength = nn.Linear(size.d_model, size.num_heads)
        nn.init.normal_(self.strength.weight, std=0.02)
        nn.init.zeros_(self.strength.bias)

    def read(self, x: Tensor) -> Tensor:
        """The low-rank part of w before the convolution, and then the logits of beta, [B,T,R+H]."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            strength = F.linear(x, self.strength.weight.float(), self.strength.bias.float())
            return torch.cat((F.linear(x, self.down.float()), strength), -1)

    def score(self, q: Tensor, k: Tensor, span: Span) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            w_BHSD, beta_BHS = self._reflections(span)
            return (
                turned_products(q.float(), k.float(), w_BHSD, beta_BHS, span.first) * self.size.head_dim**-0.5
            )

    def _reflections(self, span: Span) -> tuple[Tensor, Tensor]:
        """w [B,H,S,D] and beta [B,H,S] of every key; 0 at padding."""
        low, strength = span.read.split((self.rank, self.size.num_heads), -1)
        beta = 2 * strength.sigmoid()
        if span.keep is not None:
            low, beta = low * span.keep[..., None], beta * span.keep[..., None]
        channels = F.linear(low, self.up.float()).transpose(1, 2)
        taps = self.taps.float()
        w = F.silu(F.conv1d(F.pad(channels, (taps.shape[-1] - 1, 0)), taps, groups=len(taps)))
        w = w.unflatten(1, (self.size.num_heads, self.size.head_dim)).transpose(2, 3)
        # Padding before a sequence has w = 0: no division by its length.
        return w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt(), beta.transpose(1, 2)


def turned_products(q_BHTD: Tensor, k_BHSD: Tensor, w_BHSD: Tensor, beta_BHS: Tensor, first: int) -> Tensor:
    """k_j . (H_(j+1) ... H_i - 1) q_i for the queries in rows first .. of the keys, [B,H,T,S].

    With P = tril(Q W^T), the transformations of a block of keys take from the queries P A^-1 b W, and from
    their products with the block's own keys P A^-1 b stril(W K^T), where b = diag(beta) and
    A = 1 + b stril(W W^T). Blocks are taken from the last to the first, as a query meets them.
    """
    keys = k_BHSD.shape[2]
    size = min(BLOCK, keys)
    fill = -keys % size
    k_BHNKD, w_BHNKD = (F.pad(x, (0, 0, 0, fill)).unflatten(2, (-1, size)) for x in (k_BHSD, w_BHSD))
    beta_BHNK1 = F.pad(beta_BHS, (0, fill)).unflatten(2, (-1, size))[..., None]
    # One solve for all blocks. `unitriangular` takes the ones on the diagonal as given.
    products = torch.cat((w_BHNKD, (w_BHNKD @ k_BHNKD.transpose(-1, -2)).tril(-1)), -1)
    within_BHNKK = (beta_BHNK1 * (w_BHNKD @ w_BHNKD.transpose(-1, -2))).tril(-1)
    solved = torch.linalg.solve_triangular(
        within_BHNKK, beta_BHNK1 * products, upper=False, unitriangular=True
    )
    on_query_BHNKD, on_key_BHNKK = solved.split((q_BHTD.shape[-1], size), -1)

    row = torch.arange(first, first + q_BHTD.shape[2], device=q_BHTD.device)[:, None]
    column = torch.arange(size, device=q_BHTD.device)
    change_BHTD, scores = torch.zeros_like(q_BHTD), []
    for block in reversed(range(k_BHNKD.shape[2])):
        met_BHTK = (q_BHTD + change_BHTD) @ w_BHNKD[:, :, block].transpose(-1, -2)
        met_BHTK = met_BHTK.masked_fill(column + block * size > row, 0.0)
        on_keys = change_BHTD @ k_BHNKD[:, :, block].transpose(-1, -2)
        scores.append(on_keys - met_BHTK @ on_key_BHNKK[:, :, block])
        change_BHTD = change_BHTD - met_BHTK @ on_query_BHNKD[:, :, block]
    return torch.cat(scores[::-1], -1)[..., :keys]
