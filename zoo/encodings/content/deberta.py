"""The disentangled attention of DeBERTa.

Shapes in names: B batch, T queries, S keys, H heads, D head width, E model width, R rows of the table.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.encodings.base import Encoding, Size
from zoo.encodings.context import AttentionContext
from zoo.registry import register


@register("deberta")
class DeBERTa(Encoding):
    """Content meets position twice: the query asks for distances, and the key is asked for by them.

    score = (q_i . k_j + q_i . K_r + k_j . Q_r) / sqrt(3 D) with K = P W_k, Q = P W_q and r the bucket of
    i - j. Distances below half of the buckets have one each; farther ones share buckets that grow
    logarithmically. All from max_distance - 1 on are in the last, which that distance trains. An encoder has
    as many for keys that come after the query.

    Options:
        position_buckets: buckets for each direction; None gives each distance below max_distance its own, as
            in DeBERTa's first version. There, in an encoder, keys that come max_distance or more after the
            query have a row of their own, which stays at its start in training on shorter sequences.
        max_distance: (`max_relative_positions` there) distances count up to one less than this, in tokens.
        terms: (`pos_att_type` there) `both`, or one of `c2p`, q_i . K_r, and `p2c`, k_j . Q_r, over sqrt(2 D)
            then.

    Since q k is divided too, it cannot be combined with an encoding that rotates. Each layer has its own
    table P, normalised to mean 0 and variance 1 as in versions 2 and 3, without their gain and offset, and
    its own W_k and W_q; the authors' layers share P, and their released models take the content's W_k and
    W_q. For k_j . Q_r their code looks up the bucket of i - j where the paper writes that of j - i; this
    follows the code. All are drawn from N(0, 0.02). Checked against `transformers` (DebertaV2:
    DisentangledSelfAttention, make_log_bucket_position), which differs for keys far after the query: it does
    not limit the distance before it takes the bucket, as the authors' code (github.com/microsoft/DeBERTa)
    does, and lets them fall into a row that nothing nearer ever trains.
    """

    formula = (
        r"a_{ij} = \frac{q_i \cdot k_j + q_i \cdot K_{r(i-j)} + k_j \cdot Q_{r(i-j)}}{\sqrt{3D}},"
        r"\qquad K = P W_k,\ Q = P W_q"
    )
    paper = "He et al. 2020 (arXiv:2006.03654)"
    family = "content"
    weight_matrices = ("keys", "queries")
    relative = True
    extrapolates = "no"
    per_layer = True
    integer_positions = True

    def __init__(
        self,
        size: Size,
        *,
        position_buckets: int | None = 256,
        max_distance: int = 512,
        terms: Literal["both", "c2p", "p2c"] = "both",
    ):
        super().__init__(size)
        if position_buckets is not None and (position_buckets < 4 or position_buckets % 2):
            raise ValueError(f"position_buckets must be even and at least 4, not {position_buckets}")
        least = 1 if position_buckets is None else position_buckets // 2 + 2
        if max_distance < least:
            raise ValueError(f"max_distance must be at least {least} with these buckets, not {max_distance}")
        self.one_way = max_distance if position_buckets is None else position_buckets
        # The causal mask leaves one direction.
        self.middle = 0 if size.causal else self.one_way
        self.divisor = (3 if terms == "both" else 2) ** 0.5
        width = size.d_model
        self.table = nn.Parameter(0.02 * torch.randn(self.middle + self.one_way, width))
        heads = size.num_heads * size.head_dim
        self.keys = nn.Parameter(0.02 * torch.randn(heads, width)) if terms != "p2c" else None
        self.queries = nn.Parameter(0.02 * torch.randn(heads, width)) if terms != "c2p" else None
        if position_buckets is None:
            bucket = torch.arange(max_distance + 1)
        else:
            bucket = log_buckets(torch.arange(max_distance), position_buckets)
        self.register_buffer("bucket", bucket, persistent=False)

    def rotate(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Divides q, so that the product counts as one term of three."""
        return q / self.divisor, k

    def score(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        q, k = (x * (self.size.scale / self.divisor) for x in (q, k))
        keys_HRD, queries_HRD = self._projected(self.keys, q), self._projected(self.queries, k)
        rows_BHTS = self._rows(context.distance())
        rows_BHTS = rows_BHTS.expand(q.shape[0], q.shape[1], *rows_BHTS.shape[-2:])
        # All rows of the table first and then a lookup: no [T,S,D] tensor.
        terms = []
        if keys_HRD is not None:
            terms.append((q @ keys_HRD.mT).gather(-1, rows_BHTS))
        if queries_HRD is not None:
            terms.append((k @ queries_HRD.mT).gather(-1, rows_BHTS.transpose(-1, -2)).transpose(-1, -2))
        return sum(terms[1:], terms[0])

    def _projected(self, weight: Tensor | None, like: Tensor) -> Tensor | None:
        """The table's rows as each head sees them, [H,R,D]."""
        if weight is None:
            return None
        table_RE = F.layer_norm(self.table.float(), (self.size.d_model,), eps=1e-7).to(like.dtype)
        rows_RE = F.linear(table_RE, weight.to(like.dtype))
        return rows_RE.unflatten(-1, (self.size.num_heads, self.size.head_dim)).transpose(0, 1)

    def _rows(self, distance: Tensor) -> Tensor:
        """The table's row for each of some distances."""
        distance = distance.long()
        bucket = self.bucket[distance.abs().clamp(max=len(self.bucket) - 1)]
        return (self.middle + distance.sign() * bucket).clamp(0, len(self.table) - 1)


def log_buckets(distance: Tensor, buckets: int) -> Tensor:
    """The buckets of distances 0 .. max_distance - 1: themselves up to buckets / 2, then logarithmic."""
    half, last = buckets // 2, distance[-1]
    # In float32, and in this order, so that every distance falls where the published code has it.
    share = torch.log(distance.clamp(min=half) / half) / torch.log(last / half)
    return torch.where(distance <= half, distance, torch.ceil(share * (half - 1)).long() + half)
