"""The plan that gives a fused kernel all biases, scores and the mask as one table.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from zoo.models.kernels import cpu_attention
from zoo.models.plans.fused import sdpa
from zoo.models.scores import ScoreTerms, apply_mask


@dataclass(frozen=True)
class Table:
    """Attention with biases and scores, of any mask."""

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        if cpu_attention.applies(q_BHTD):
            wide = torch.promote_types(q_BHTD.dtype, torch.float32)
            # In training the kernel hides later keys wherever the first query is.
            alone = torch.is_grad_enabled() and scores.context.only_causal_mask()
            hidden = alone or scores.context.is_plain_causal()
            mask = additive_mask(q_BHTD, k_BHSD, scores, wide, causal_in_kernel=hidden)
            first = scores.context.query_offset if scores.context.causal else None
            return cpu_attention.attend(scores.scaled_queries(q_BHTD), k_BHSD, v_BHSV, mask, scale, first)
        mask = additive_mask(q_BHTD, k_BHSD, scores, q_BHTD.dtype)
        # cuDNN, first choice on Hopper, has defects with a mask (pytorch#196678, #191612).
        no_cudnn = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        with sdpa_kernel(no_cudnn) if q_BHTD.is_cuda else nullcontext():
            return sdpa(scores.scaled_queries(q_BHTD), k_BHSD, v_BHSV, attn_mask=mask, scale=scale)


def additive_mask(
    q_BHTD: Tensor, k_BHSD: Tensor, scores: ScoreTerms, dtype: torch.dtype, causal_in_kernel: bool = False
) -> Tensor | None:
    """Biases and scores, scaled, and the mask, in a precision; None if nothing is added or masked.

    `causal_in_kernel`: the kernel hides the later keys itself, and the mask does no more than that.
    """

    def add() -> Tensor | None:
        return scores.added(q_BHTD, k_BHSD)

    def make() -> Tensor | None:
        return _with_mask(add(), scores, dtype, causal_in_kernel)

    if scores.layer.scored:
        return make()
    # A learned scale is each layer's own; the bias that it scales is not.
    if scores.layer.biased and scores.row_scale is not None and not scores.row_scale.shared:
        return _with_mask(scores.once("bias", add), scores, dtype, causal_in_kernel)
    return scores.once("mask", make)


def _with_mask(
    added: Tensor | None, scores: ScoreTerms, dtype: torch.dtype, causal_in_kernel: bool
) -> Tensor | None:
    unmasked = causal_in_kernel or scores.context.is_open()
    if added is None:
        return None if unmasked else scores.context.allowed()
    if scores.row_scale is not None:
        added = scores.row_scale.of_table(added)
    if not unmasked:
        added = apply_mask(added, scores.context)
    # The fused CPU kernel takes masks of two or four dimensions, not three.
    return (added[None] if added.dim() == 3 else added).to(dtype)
