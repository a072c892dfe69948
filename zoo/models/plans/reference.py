"""The plan that every other one equals: a table of weights, by plain operations.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.models.scores import ScoreTerms, apply_mask


@dataclass(frozen=True)
class Reference:
    """Attention of any encoding, with its `logits`, `weights` and `value`."""

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        weights_BHTS = attention_weights(q_BHTD, k_BHSD, scores, scale).to(v_BHSV.dtype)
        out_BHTV = weights_BHTS @ v_BHSV
        extra_BHTV = scores.value(weights_BHTS)
        return out_BHTV if extra_BHTV is None else out_BHTV + extra_BHTV


def attention_weights(q_BHTD: Tensor, k_BHSD: Tensor, scores: ScoreTerms, scale: float) -> Tensor:
    """The attention weights as one table: [B,H,T,S], in float32 or wider.

    A row sums to one, or to less if an encoding overrides `weights`. It is zero where no key is visible.
    """
    products_BHTS = (q_BHTD * scale) @ k_BHSD.transpose(-1, -2)
    logits_BHTS = products_BHTS.to(torch.promote_types(products_BHTS.dtype, torch.float32))
    added = scores.added(q_BHTD, k_BHSD)
    if added is not None:
        logits_BHTS = logits_BHTS + added
    logits_BHTS = scores.logits(logits_BHTS, q_BHTD, k_BHSD)
    if not scores.context.is_open():
        logits_BHTS = apply_mask(logits_BHTS, scores.context)
    return scores.weights(logits_BHTS)
