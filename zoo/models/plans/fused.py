"""Plans that write no table of scores: none is needed, or a row of keys or a line of distances is enough.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values, N distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from zoo.encodings.context import AttentionContext
from zoo.models.kernels import cpu_attention
from zoo.models.scores import ScoreTerms, total


@dataclass(frozen=True)
class Fused:
    """Attention of queries that see every key, or the last queries of a sequence, each up to its own key.

    Attributes:
        bias_BH1S: a number added to the scores of each key; None: nothing is added.
    """

    bias_BH1S: Tensor | None = None

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        q_BHTD, causal = scores.scaled_queries(q_BHTD), not scores.context.is_open()
        first = scores.context.query_offset if causal else None
        if cpu_attention.applies(q_BHTD):
            return cpu_attention.attend(q_BHTD, k_BHSD, v_BHSV, self.bias_BH1S, scale, first)
        if first:
            bias = causal_lower_right(q_BHTD.shape[2], k_BHSD.shape[2])
            return sdpa(q_BHTD, k_BHSD, v_BHSV, attn_mask=bias, scale=scale)
        return sdpa(q_BHTD, k_BHSD, v_BHSV, is_causal=causal, scale=scale)


def key_bias(k_BHSD: Tensor, scores: ScoreTerms) -> Tensor | None:
    """All biases and scores as one number for each key, [B,H,1,S]; None without any or where one has no such
    form."""
    if scores.row_scale is not None:
        return None
    k_BHSD = k_BHSD if scores.content is None else scores.content[1]
    terms = []
    for i in dict.fromkeys((*scores.layer.biased, *scores.layer.scored)):
        terms.append(scores.layer.encodings[i].key_score(k_BHSD, scores.contexts[i]))
        if terms[-1] is None:
            return None
    return total(terms)


@dataclass(frozen=True)
class Line:
    """Attention on a CPU whose bias and mask depend on the distance alone. Keys outside a window are left
    out."""

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        seen = scores.context.reach()
        first = scores.context.query_offset - seen.start if scores.context.causal else None
        q_BHTD, k_BHSD, v_BHSV = scores.scaled_queries(q_BHTD), k_BHSD[:, :, seen], v_BHSV[:, :, seen]
        line_HN = scores.once("line", lambda: line_of(scores, q_BHTD, seen))
        return cpu_attention.attend(q_BHTD, k_BHSD, v_BHSV, line_HN, scale, first, by_distance=True)


def is_by_distance(scores: ScoreTerms) -> bool:
    """Whether bias and mask of a query and a key depend on the distance of their rows alone."""
    if scores.layer.scored or scores.context.masks_by_sequence or scores.context.sinks is not None:
        return False
    by_distance = (one.distance_only and at.consecutive for one, at in scores.using("biased"))
    return not scores.layer.biased or (scores.row_scale is None and all(by_distance))


def line_of(scores: ScoreTerms, q_BHTD: Tensor, seen: slice) -> Tensor:
    """Bias and mask by distance, in float32: [H,N], or [1,N] without a bias.

    It begins with the distance of the last query to the first of the keys `seen`, and ends with that of the
    first query to the last of them.
    """
    context = scores.context
    farthest = context.query_offset + context.num_queries - 1 - seen.start
    keys = torch.arange(context.num_queries + seen.stop - seen.start - 1, device=q_BHTD.device)
    query = keys.new_tensor([farthest])
    # As one query sees them that has all the distances before it or, not causal, on both sides.
    one = AttentionContext(query, keys, farthest, context.causal, context.window, consecutive=True)
    biased, heads = scores.using("biased"), q_BHTD.shape[1]
    line_HN = total([encoding.bias_table(one, heads)[:, 0] for encoding, _ in biased])
    line_HN = torch.zeros(1, len(keys), device=keys.device) if line_HN is None else line_HN
    return line_HN.masked_fill(~one.allowed(), -torch.inf)


def sdpa(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, **options: Any) -> Tensor:
    """PyTorch's kernels, also for values of another width than the keys: none on a CPU supports that, and the
    unfused one writes the table of scores. Padding with zeros changes no product."""
    width = v_BHSV.shape[-1]
    if width == k_BHSD.shape[-1] or (q_BHTD.is_cuda and k_BHSD.shape[-1]):
        return F.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSV, **options)
    widest = max(width, k_BHSD.shape[-1])
    q_BHTD, k_BHSD, v_BHSV = (F.pad(x, (0, widest - x.shape[-1])) for x in (q_BHTD, k_BHSD, v_BHSV))
    return F.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSV, **options)[..., :width]
