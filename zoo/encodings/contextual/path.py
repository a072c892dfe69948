"""Position encoding by accumulated Householder transformations (PaTH).

Shapes in names: B batch, T tokens, S tokens and earlier ones, P earlier ones, H heads, D head width, N parts
of C tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import AttentionContext, Encoding, Size
from zoo.fields import Positive
from zoo.registry import register

BLOCK = 32
"""Tokens whose reflections are multiplied by solving for them; larger blocks lose digits where tokens are
alike."""

PART = 128
"""Tokens up to which neighbouring blocks are joined, for fewer steps from part to part."""


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
    Keys are kept as the last token sees them: a token that is decoded costs one reflection of each. Checked
    against a loop that applies one H at a time, with forget gates and without; w and beta follow the authors'
    layer (github.com/fla-org/flash-linear-attention, PaTHAttention).
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
        with torch.autocast(q.device.type, enabled=False):
            stop = context.query_offset + q.shape[2]
            w_BHTD, beta_BHT = self._reflections(context, context.query_offset, stop)
            q, new = q.float() * self.size.head_dim**-0.5, k[:, :, context.query_offset : stop].float()
            # The keys go on from what the tokens before left; where that is not kept, the queries go back.
            rows = context.rows("keys as the last token sees them")
            goes_on = rows is not None and rows.count == context.query_offset
            if goes_on and q.shape[2] == 1:
                # In place: no copy of all keys.
                if context.query_offset:
                    turn_(rows.writable(), w_BHTD, beta_BHT)
                return q @ rows.append(new).mT
            earlier = rows.all() if goes_on and context.query_offset else new[:, :, :0]
            products_BHTS, keys = turned_products(q, new, w_BHTD, beta_BHT, earlier)
            if context.query_offset and not goes_on:
                before = (
                    k[:, :, : context.query_offset].float(),
                    *self._reflections(context, 0, context.query_offset),
                )
                with_earlier = products_with_earlier(q, w_BHTD, beta_BHT, *before)
                return torch.cat((with_earlier, products_BHTS), -1)
            if rows is not None:
                rows.replace(keys)
            return products_BHTS

    def _reflections(self, context: AttentionContext, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """w [B,H,T,D] and beta [B,H,T] of the tokens in rows start..stop; 0 at padding."""
        # The convolution sees a few tokens before.
        taps_KE = self.taps[:, 0].float().T
        seen = slice(max(0, start - len(taps_KE) + 1), stop)
        before = start - seen.start
        low, strength = context.features[:, seen].split((self.rank, self.size.num_heads), -1)
        beta = 2 * strength[:, before:].sigmoid()
        if context.keep is not None:
            keep = context.keep[:, seen, None]
            low, beta = low * keep, beta * keep[:, before:]
        if before < len(taps_KE) - 1:
            low = F.pad(low, (0, 0, len(taps_KE) - 1 - before, 0))
        x_BTE = F.linear(low, self.up.float())
        if stop - start == 1:
            mixed_BTE = (x_BTE * taps_KE).sum(1, keepdim=True)
        else:
            # Few taps: each a product is faster than a convolution.
            mixed = [x_BTE[:, i : i + stop - start] * tap_E for i, tap_E in enumerate(taps_KE)]
            mixed_BTE = sum(mixed[1:], mixed[0])
        w = F.silu(mixed_BTE).unflatten(-1, (-1, self.size.head_dim)).transpose(1, 2)
        # Padding before a sequence has w = 0: no division by its length.
        return w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt(), beta.transpose(1, 2)


@dataclass(frozen=True)
class _Parts:
    """Consecutive tokens, C in each part, and what their reflections do within it."""

    products_BHNCC: Tensor
    """k_j . H_(j+1) ... H_i q_i, on and below the diagonal; what is above has no meaning."""
    q_BHNCD: Tensor
    """Each query on its way back, where it leaves the part."""
    k_BHNCD: Tensor
    """Each key on its way to later queries, where it leaves the part."""
    turn_BHNDD: Tensor
    """What a query, as a row, is multiplied by on its way through the whole part; a key by the transpose."""

    @classmethod
    def of_blocks(cls, q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> _Parts:
        """With P = tril(Q W^T), b = diag(beta) and A = 1 + b stril(W W^T), a block's reflections take
        P A^-1 b W from its queries, and P A^-1 b stril(W K^T) from their products with its keys."""
        beta = beta[..., None]
        products = torch.cat((w, (w @ k.mT).tril(-1)), -1)
        # `unitriangular` takes the ones on the diagonal as given.
        solved = torch.linalg.solve_triangular(
            (beta * (w @ w.mT)).tril(-1), beta * products, upper=False, unitriangular=True
        )
        on_query, on_key = solved.split((w.shape[-1], w.shape[-2]), -1)
        met = (q @ w.mT).tril()
        turn = torch.eye(w.shape[-1], device=w.device, dtype=w.dtype) - w.mT @ on_query
        return cls(q @ k.mT - met @ on_key, q - met @ on_query, k - on_key.mT @ w, turn)

    def in_pairs(self) -> _Parts:
        """Each two neighbours as one part."""
        pairs = (x.unflatten(2, (-1, 2)).unbind(3) for x in vars(self).values())
        (own, later_own), (q, later_q), (k, later_k), (turn, later_turn) = pairs
        across = later_q @ k.mT
        products = torch.cat(
            (torch.cat((own, torch.zeros_like(own)), -1), torch.cat((across, later_own), -1)), -2
        )
        q, k = torch.cat((q, later_q @ turn), -2), torch.cat((k @ later_turn.mT, later_k), -2)
        return _Parts(products, q, k, later_turn @ turn)


def turned_products(
    q_BHTD: Tensor, k_BHTD: Tensor, w_BHTD: Tensor, beta_BHT: Tensor, earlier_BHPD: Tensor
) -> tuple[Tensor, Tensor]:
    """k_j . H_(j+1) ... H_i q_i of new tokens i and all tokens j up to them, [B,H,T,S].

    Args:
        earlier_BHPD: the earlier keys as the last token before the new ones sees them.

    Returns:
        The products, what is above the diagonal of no meaning; and all keys as the last new token sees them,
        [B,H,S,D].
    """
    tokens, keys_BHSD, rows = q_BHTD.shape[2], earlier_BHPD, []
    parts = _parts(q_BHTD, k_BHTD, w_BHTD, beta_BHT)
    total = earlier_BHPD.shape[2] + parts.q_BHNCD.shape[2] * parts.q_BHNCD.shape[3]
    for own, q, k, turn in zip(*(x.unbind(2) for x in vars(parts).values()), strict=True):
        after = own.new_zeros(()).expand(*own.shape[:3], total - keys_BHSD.shape[2] - own.shape[3])
        rows.append(torch.cat((q @ keys_BHSD.mT, own, after), -1))
        keys_BHSD = torch.cat((keys_BHSD @ turn.mT, k), 2)
    seen = earlier_BHPD.shape[2] + tokens
    return torch.cat(rows, 2)[:, :, :tokens, :seen], keys_BHSD[:, :, :seen]


def products_with_earlier(
    q_BHTD: Tensor,
    w_BHTD: Tensor,
    beta_BHT: Tensor,
    k_BHPD: Tensor,
    w_BHPD: Tensor,
    beta_BHP: Tensor,
) -> Tensor:
    """The same of earlier tokens j alone, [B,H,T,P], where the queries go back: no key is turned."""
    own, left, columns = _parts(q_BHTD, w_BHTD, w_BHTD, beta_BHT), [], []
    back_BHDD = torch.eye(q_BHTD.shape[3], device=q_BHTD.device, dtype=q_BHTD.dtype)
    for q, turn in zip(own.q_BHNCD.unbind(2), own.turn_BHNDD.unbind(2), strict=True):
        left.append(q @ back_BHDD)
        back_BHDD = turn @ back_BHDD
    q, parts = torch.cat(left, 2)[:, :, : q_BHTD.shape[2]], _parts(None, k_BHPD, w_BHPD, beta_BHP)
    for k, turn in zip(parts.k_BHNCD.flip(2).unbind(2), parts.turn_BHNDD.flip(2).unbind(2), strict=True):
        columns.append(q @ k.mT)
        q = q @ turn
    return torch.cat(columns[::-1], -1)[..., : k_BHPD.shape[2]]


def turn_(keys_BHPD: Tensor, w_BH1D: Tensor, beta_BH1: Tensor) -> None:
    """One reflection of all keys, in place."""
    met_BHP1 = (w_BH1D @ keys_BHPD.mT).mT
    keys_BHPD.addcmul_(met_BHP1, beta_BH1[..., None] * w_BH1D, value=-1)


def _parts(q: Tensor | None, k: Tensor, w: Tensor, beta: Tensor) -> _Parts:
    """Without queries there are none in the parts, and no products."""
    tokens = k.shape[2]
    block = length = min(BLOCK, tokens)
    while length < min(tokens, PART):
        length *= 2
    # Filled up with tokens that reflect nothing.
    fill = -tokens % length
    k, w, *q = (F.pad(x, (0, 0, 0, fill)).unflatten(2, (-1, block)) for x in (k, w, q) if x is not None)
    queries = q[0] if q else k[..., :0, :]
    parts = _Parts.of_blocks(queries, k, w, F.pad(beta, (0, fill)).unflatten(2, (-1, block)))
    while parts.k_BHNCD.shape[3] < length:
        parts = parts.in_pairs()
    return parts
