"""Position encoding by accumulated Householder transformations (PaTH).

Shapes in names: B batch, T queries, S keys, P keys before the queries, H heads, D head width, N blocks of C
tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.recipe.fields import Positive
from zoo.registry import register

BLOCK = 32
"""Tokens whose reflections are multiplied by solving for them; larger blocks lose digits where tokens are
alike."""


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

    It is the whole product, and so cannot be combined with an encoding that rotates. PaTH-FoX as the
    authors compute it is `[path, {name: fox, scaled: true}]`: they add the forget gates before the division
    by sqrt(D); `[path, fox]` adds them after it, as FoX does. All weights are drawn from N(0, 0.02), the
    convolution's taps too, as in the authors' model; c starts at 0. All of it is computed in float32. Padding
    reflects nothing, and a window hides keys but keeps their reflections. Positions are not read.
    While decoding, keys are kept as the last token sees them: a new token costs one reflection of each key.
    Checked against a loop that applies one H at a time, with forget gates and without; w and beta follow the
    authors' layer (github.com/fla-org/flash-linear-attention, PaTHAttention).
    """

    formula = (
        r"a_{ij} = \frac{k_j^\top H_{j+1} H_{j+2} \cdots H_i\, q_i}{\sqrt{D}},"
        r"\qquad H_t = I - \beta_t w_t w_t^\top"
    )
    paper = "Yang et al. 2025 (arXiv:2505.16381)"
    family = "contextual"
    weight_matrices = ("down", "up")
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, rank: Positive = 32, kernel: Positive = 3):
        super().__init__(size)
        self.rank = rank
        self.down = nn.Parameter(0.02 * torch.randn(rank, size.d_model))
        heads = size.num_heads * size.head_dim
        self.up = nn.Parameter(0.02 * torch.randn(heads, rank))
        self.taps = nn.Parameter(0.02 * torch.randn(heads, 1, kernel))
        self.strength = nn.Linear(size.d_model, size.num_heads)
        nn.init.normal_(self.strength.weight, std=0.02)
        nn.init.zeros_(self.strength.bias)

    def read(self, x: Tensor) -> Tensor:
        """The low-rank part of w before the convolution, and then the logits of beta, [B,T,R+H]."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            strength = F.linear(x, self.strength.weight.float(), self.strength.bias.float())
            return torch.cat((F.linear(x, self.down.float()), strength), -1)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Leaves nothing to multiply: `score` is the whole product."""
        return q[..., :0], k[..., :0]

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        start = context.query_offset
        stop = start + q.shape[2]
        with torch.autocast(q.device.type, enabled=False):
            reflections = self._reflections(context, start, stop)
            q, k = q.float() * self.size.scale, k.float()
            own = q, k[:, :, start:stop], *reflections
            rows = context.rows("keys as the last token sees them")
            if start and (rows is None or rows.count != start):
                return products_back_to(k[:, :, :start], *self._reflections(context, 0, start), *own)
            products, keys = products_with_kept(
                k[:, :, :0] if rows is None or not start else rows.all(), *own
            )
            if rows is not None:
                rows.replace(keys)
            return products

    def _reflections(self, context: AttentionContext, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """w [B,H,T,D] and beta [B,H,T] of the tokens in rows start..stop; 0 at padding."""
        taps_KE = self.taps[:, 0].float().T
        # The convolution sees a few tokens before.
        seen = slice(max(0, start - len(taps_KE) + 1), stop)
        low, strength = context.features[:, seen].split((self.rank, self.size.num_heads), -1)
        beta = 2 * strength[:, start - seen.start :].sigmoid()
        if context.keep is not None:
            beta = beta * context.keep[:, start:stop, None]
        mixed_BTE = context.convolved(F.linear(low, self.up.float()), taps_KE, start, stop)
        w = F.silu(mixed_BTE).unflatten(-1, (-1, self.size.head_dim)).transpose(1, 2)
        # Padding before a sequence has w = 0: no division by its length.
        return w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt(), beta.transpose(1, 2)


class _ReflectionBlocks(NamedTuple):
    """Consecutive tokens, C in each block, and the effect of their reflections within it.

    With P = tril(Q W^T), b = diag(beta) and A = 1 + b stril(W W^T), a block's reflections take P A^-1 b W
    from its queries, and P A^-1 b stril(W K^T) from their products with its keys.
    """

    products_BHNCC: Tensor
    """k_j . H_(j+1) ... H_i q_i, on and below the diagonal; the rest has no meaning."""
    q_BHNCD: Tensor
    """Each query on its way back, where it leaves the block."""
    k_BHNCD: Tensor
    """Each key on its way to later queries, where it leaves the block."""
    w_BHNCD: Tensor
    solved_BHNCD: Tensor
    """A^-1 b W. A query x leaves an earlier block as x - (x W^T) solved, a key y a later one as
    y - (y solved^T) W."""

    @classmethod
    def of(cls, q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> _ReflectionBlocks:
        """Blocks of the tokens of k, w and beta, padded with tokens that reflect nothing; q may be empty."""
        block = min(BLOCK, k.shape[2])
        fill = -k.shape[2] % block
        k, w, beta = (F.pad(x, (0, 0, 0, fill)).unflatten(2, (-1, block)) for x in (k, w, beta[..., None]))
        q = F.pad(q, (0, 0, 0, fill)).unflatten(2, (-1, block)) if q.shape[2] else k[..., :0, :]
        given = torch.cat((w, (w @ k.mT).tril(-1)), -1)
        # `unitriangular` takes the ones on the diagonal as given.
        solved = torch.linalg.solve_triangular(
            (beta * (w @ w.mT)).tril(-1), beta * given, upper=False, unitriangular=True
        )
        on_query, on_key = solved.split((w.shape[-1], block), -1)
        met = (q @ w.mT).tril()
        return cls(q @ k.mT - met @ on_key, q - met @ on_query, k - on_key.mT @ w, w, on_query)

    def each(self) -> list[tuple[Tensor, ...]]:
        return list(zip(*(x.unbind(2) for x in self), strict=True))


def products_with_kept(
    kept_BHPD: Tensor, q_BHTD: Tensor, k_BHTD: Tensor, w_BHTD: Tensor, beta_BHT: Tensor
) -> tuple[Tensor, Tensor]:
    """k_j . H_(j+1) ... H_i q_i of new tokens i and all tokens j up to them, [B,H,T,S].

    Args:
        kept_BHPD: the earlier keys as the last token before the new ones sees them.

    Returns:
        The products, those above the diagonal without meaning; and all keys as the last new token sees them,
        [B,H,S,D].
    """
    rows, keys, blocks = [], kept_BHPD, _ReflectionBlocks.of(q_BHTD, k_BHTD, w_BHTD, beta_BHT)
    total = kept_BHPD.shape[2] + blocks.q_BHNCD.shape[2:4].numel()
    for own, q, k, w, solved in blocks.each():
        row = torch.cat((q @ keys.mT, own), -1)
        rows.append(F.pad(row, (0, total - row.shape[-1])))
        keys = torch.cat((keys - (keys @ solved.mT) @ w, k), 2)
    tokens = q_BHTD.shape[2]
    seen = kept_BHPD.shape[2] + tokens
    return torch.cat(rows, 2)[:, :, :tokens, :seen], keys[:, :, :seen]


def products_back_to(
    k_BHPD: Tensor,
    w_BHPD: Tensor,
    beta_BHP: Tensor,
    q_BHTD: Tensor,
    k_BHTD: Tensor,
    w_BHTD: Tensor,
    beta_BHT: Tensor,
) -> Tensor:
    """The same products, [B,H,T,S], where nothing is kept of earlier tokens: queries go back to them."""
    earlier = _ReflectionBlocks.of(q_BHTD[:, :, :0], k_BHPD, w_BHPD, beta_BHP)
    own = _ReflectionBlocks.of(q_BHTD, k_BHTD, w_BHTD, beta_BHT)
    left, columns = q_BHTD[:, :, :0], []
    rows = own.q_BHNCD.shape[2:4].numel()
    for within, q, k, w, solved in reversed([*earlier.each(), *own.each()]):
        column = torch.cat((within, left @ k.mT), 2)
        columns.append(F.pad(column, (0, 0, rows - column.shape[2], 0)))
        left = torch.cat((q, left - (left @ w.mT) @ solved), 2)
    before, new = torch.cat(columns[::-1], -1)[:, :, : q_BHTD.shape[2]].tensor_split((-rows,), -1)
    return torch.cat((before[..., : k_BHPD.shape[2]], new[..., : q_BHTD.shape[2]]), -1)
