"""Attention with a gate for each channel of queries and keys (Wall).

Shapes in names: B batch, T queries, S keys, H heads, D head width, N blocks of C tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.registry import register

BLOCK = 128
"""Most queries in a part, a power of two."""


@register("wall")
class Wall(Encoding):
    """Each token closes gates on the tokens before it, one for each channel of each head.

    score = sum_n q_in k_jn exp(P_in - P_jn) / sqrt(D) with P_t = g_1 + ... + g_t and
    g_t = log sigmoid(W x_t + b), where x_t is the input of the attention layer. Each layer has its own gates.

    Options:
        gate_bias: the start of b. At 8, as the authors start, attention is nearly the plain one.

    It is the whole product, and so cannot be combined with an encoding that rotates. The gate of a whole head
    that the authors may add is `[wall, fox]`; their output gate belongs to their block. W is drawn from
    N(0, 0.02). All of it is computed in float32. A token between key and query splits the gates into the
    query's and the key's. Both products are at most 1, so neither overflows.
    Gates of padding are open. A window hides keys but keeps their gates. Positions are not read. Checked
    against a loop over the formula and, with open gates, plain products; and once against `naive_wall_attn`
    of the authors' code (github.com/fla-org/flash-linear-attention, `ops/wall_attn/naive.py`).
    """

    formula = (
        r"a_{ij} = \frac{1}{\sqrt{D}} \sum_n q_{in} k_{jn} \prod_{t=j+1}^{i} f_{tn},"
        r"\qquad f_t = \sigma(W x_t + c)"
    )
    paper = "Pai et al. 2026 (https://blog.tilderesearch.com/blog/wall-attn)"
    family = "contextual"
    encoder = False
    relative = True
    extrapolates = "yes"
    per_layer = True
    reads_positions = False

    def __init__(self, size: Size, *, gate_bias: float = 8.0):
        super().__init__(size)
        self.gate = nn.Linear(size.d_model, size.num_heads * size.head_dim)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.constant_(self.gate.bias, gate_bias)

    def read(self, x: Tensor) -> Tensor:
        """The log of each token's gates, [B,T,HD], in float32."""
        with torch.autocast(x.device.type, enabled=False):
            return F.logsigmoid(F.linear(x.float(), self.gate.weight.float(), self.gate.bias.float()))

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Leaves nothing to multiply: `score` is the whole product."""
        return q[..., :0], k[..., :0]

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        gates = context.features
        if context.keep is not None:
            gates = gates * context.keep[..., None]
        gates_BHSD = gates.unflatten(-1, (-1, self.size.head_dim)).transpose(1, 2)
        with torch.autocast(q.device.type, enabled=False):
            seen = gates_BHSD[:, :, : context.query_offset + q.shape[2]]
            return gated_products(q.float() * self.size.scale, k.float(), seen)


def gated_products(q_BHTD: Tensor, k_BHSD: Tensor, gates_BHSD: Tensor) -> Tensor:
    """The sum over n of q_in k_jn exp(g_(j+1)n + ... + g_in), [B,H,T,S]; without meaning for keys after i.

    The queries are those of the last T tokens. They are taken in parts of 2^n.
    """
    missing = -q_BHTD.shape[2] % min(BLOCK, 2 ** (q_BHTD.shape[2] - 1).bit_length())
    if missing and torch.compiler.is_compiling():
        # A compiler writes out each part: 57 tokens in four of them take three times as long as 64 in one.
        padded = (F.pad(x, (0, 0, missing, 0)) for x in (q_BHTD, k_BHSD, gates_BHSD))
        return gated_products(*padded)[:, :, missing:, missing:]
    tokens, rows = k_BHSD.shape[2], []
    stop = tokens - q_BHTD.shape[2]
    while stop < tokens:
        start, stop = stop, stop + min(BLOCK, 2 ** ((tokens - stop).bit_length() - 1))
        q, k, gates = (x[:, :, start - tokens : stop - tokens or None] for x in (q_BHTD, k_BHSD, gates_BHSD))
        until = F.pad(gates_BHSD[:, :, 1:start], (0, 0, 0, int(start > 0))).flip(2).cumsum(2).flip(2)
        before = (q * gates.cumsum(2).exp()) @ (k_BHSD[:, :, :start] * until.exp()).mT
        row = torch.cat((before, _within(q, k, gates)), -1)
        rows.append(F.pad(row, (0, tokens - stop)))
    return torch.cat(rows, 2)


def _within(q_BHTD: Tensor, k_BHTD: Tensor, gates_BHTD: Tensor) -> Tensor:
    """The same of the queries and the keys of 2^n tokens, [B,H,T,T]."""
    q, k, since, until = (
        x[:, :, :, None] for x in (q_BHTD, k_BHTD, gates_BHTD, torch.zeros_like(gates_BHTD))
    )
    products_BHNCC = (q * k).sum(-1, keepdim=True)
    while products_BHNCC.shape[2] > 1:
        # Two blocks become one. `since` sums the gates from a block's first token to each query, and `until`
        # those after each key to the block's last token: neither is above 0.
        (_, q1), (k0, _), (s0, s1), (u0, u1), (first, second) = (
            x.unflatten(2, (-1, 2)).unbind(3) for x in (q, k, since, until, products_BHNCC)
        )
        cross = (q1 * s1.exp()) @ (k0 * u0.exp()).mT
        above = torch.cat((first, torch.zeros_like(cross)), -1)
        products_BHNCC = torch.cat((above, torch.cat((cross, second), -1)), -2)
        since = torch.cat((s0, s1 + s0[..., -1:, :]), -2)
        until = torch.cat((u0 + s1[..., -1:, :], u1), -2)
        q, k = (x.unflatten(2, (-1, 2)).flatten(3, 4) for x in (q, k))
    return products_BHNCC.squeeze(2)
