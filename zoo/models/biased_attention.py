"""SDPA on a CPU with a bias that requires a gradient.

PyTorch's fused CPU kernel gives its bias no gradient, so that SDPA falls back to plain operations, which keep
several tables [B,H,T,S] and take twice the time. Here the forward pass is the fused kernel's. The backward
pass computes the attention weights again, a block of queries at a time, from the logsumexp that the kernel
returns (Dao et al. 2022, arXiv:2205.14135, algorithm 4), and skips the keys that no query of the block sees.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries, keys, values;
b, h: batch and heads of the bias, each of full size or 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_ELEMENTS = 2**20
"""Of a block's table [B,H,block,S], so that it stays in the processor's cache."""


def applies(q_BHTD: Tensor, bias: Tensor | None) -> bool:
    """Whether the bias needs a gradient that the fused kernel of this device does not give."""
    if bias is None or not bias.requires_grad or not torch.is_grad_enabled():
        return False
    # A compiler fuses the plain operations itself.
    return q_BHTD.device.type == "cpu" and not torch.compiler.is_compiling()


def attend(
    q_BHTD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor, bias_bhTS: Tensor, scale: float, first: int | None
) -> Tensor:
    """softmax(scale q k^T + bias) v, [B,H,T,D]; 0 for a query whose bias is -inf at every key.

    Args:
        bias_bhTS: with -inf where a query may not see a key.
        first: where queries see no later key, the row of the first query among the keys; else None.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q_BHTD, k_BHSD, v_BHSD, bias_bhTS = (x.to(dtype) for x in (q_BHTD, k_BHSD, v_BHSD, bias_bhTS))
    bias_bhTS = bias_bhTS.expand(-1, -1, q_BHTD.shape[2], k_BHSD.shape[2])
    return _BiasedAttention.apply(q_BHTD, k_BHSD, v_BHSD, bias_bhTS, scale, first)


class _BiasedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, first: int | None
    ) -> Tensor:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, logsumexp = kernel(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
        ctx.save_for_backward(q, k, v, bias, out, logsumexp)
        ctx.scale, ctx.first = scale, first
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, out, logsumexp = ctx.saved_tensors
        # Of logits and weights bf16 keeps too few digits.
        wide = torch.promote_types(q.dtype, torch.float32)
        # A query that sees nothing has no weights: exp(-inf - 0).
        logsumexp = logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)[..., None]
        mean = (dout * out).sum(-1, keepdim=True, dtype=wide)
        q_scaled, k_wide, v_wide = q.to(wide) * ctx.scale, k.to(wide), v.to(wide)
        dq = torch.empty_like(q)
        dk, dv = torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
        dbias = torch.zeros_like(bias, memory_format=torch.contiguous_format)
        size, keys = q.shape[:2].numel(), k.shape[2]
        block = max(16, BLOCK_ELEMENTS // (size * keys))
        for start in range(0, q.shape[2], block):
            rows = slice(start, min(start + block, q.shape[2]))
            seen = slice(0, keys if ctx.first is None else min(keys, ctx.first + rows.stop))
            weights = q_scaled[:, :, rows] @ k_wide[:, :, seen].mT
            weights.add_(bias[:, :, rows, seen]).sub_(logsumexp[:, :, rows]).exp_()
            dlogits = dout[:, :, rows].to(wide) @ v_wide[:, :, seen].mT
            dlogits.sub_(mean[:, :, rows]).mul_(weights)
            dbias[:, :, rows, seen] = dlogits.sum_to_size(*bias.shape[:2], *dlogits.shape[2:])
            weights, dlogits = weights.to(q.dtype), dlogits.to(q.dtype)
            dv[:, :, seen] += weights.mT @ dout[:, :, rows]
            dq[:, :, rows] = (dlogits @ k[:, :, seen]) * ctx.scale
            dk[:, :, seen] += (dlogits.mT @ q[:, :, rows]) * ctx.scale
        return dq, dk.to(k.dtype), dv.to(v.dtype), dbias, None, None
