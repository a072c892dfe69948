"""Attention on a CPU by PyTorch's fused kernel, with a gradient for its bias.

The kernel takes a mask and a bias of any strides together, which SDPA refuses, and no table is made where a
row will do. It gives the bias no gradient, so that with a learned one SDPA falls back to plain operations,
which keep several tables [B,H,T,S]. Here the backward pass of a learned bias computes the attention weights
again, a block of queries at a time, from the logsumexp that the kernel returns (Dao et al. 2022,
arXiv:2205.14135, algorithm 4), over the keys that the block sees.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values; b, h, t: batch, heads and queries of the bias, each of full size or 1.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_ELEMENTS = 2**19
"""Of a block's table [B,H,block,S], so that it stays in the processor's cache."""


def applies(q_BHTD: Tensor) -> bool:
    # A compiler fuses plain operations itself.
    return q_BHTD.device.type == "cpu" and not torch.compiler.is_compiling()


def attend(
    q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, bias_bhtS: Tensor | None, scale: float, first: int | None
) -> Tensor:
    """softmax(scale q k^T + bias) v, [B,H,T,V]; 0 for a query whose bias is -inf at every key.

    Args:
        bias_bhtS: float, with -inf where a query may not see a key, kept in float32 beside narrower queries;
            or bool, True where a query may see a key.
        first: where queries see no later key, the row of the first query among the keys; else None. Where
            queries and keys are as many, the bias need not hide the later keys.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q_BHTD, k_BHSD, v_BHSV = (x.to(dtype) for x in (q_BHTD, k_BHSD, v_BHSV))
    # The kernel takes the elements of a vector to lie side by side.
    q_BHTD, k_BHSD, v_BHSV = (x if x.stride(-1) == 1 else x.contiguous() for x in (q_BHTD, k_BHSD, v_BHSV))
    if bias_bhtS is not None:
        wide = torch.promote_types(q_BHTD.dtype, torch.float32)
        if bias_bhtS.dtype == torch.bool:
            bias_bhtS = torch.zeros_like(bias_bhtS, dtype=wide).masked_fill(~bias_bhtS, -torch.inf)
        bias_bhtS = bias_bhtS[(None,) * (4 - bias_bhtS.dim())].to(wide)
        bias_bhtS = bias_bhtS.expand(-1, -1, -1, k_BHSD.shape[2])
    if bias_bhtS is None or not bias_bhtS.requires_grad:
        return _kernel(q_BHTD, k_BHSD, v_BHSV, bias_bhtS, scale, first)[0]
    return _LearnedBias.apply(q_BHTD, k_BHSD, v_BHSV, bias_bhtS, scale, first)


def _kernel(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, first: int | None
) -> tuple[Tensor, Tensor]:
    """Output [B,H,T,V] and logsumexp of the logits [B,H,T]."""
    if bias is not None:
        bias = bias.expand(*q.shape[:3], -1)
        bias = bias if bias.stride(-1) in (0, 1) else bias.contiguous()
    # It takes vectors of one width only; zeros change no product.
    width, widest = v.shape[-1], max(q.shape[-1], v.shape[-1])
    q, k, v = (x if x.shape[-1] == widest else F.pad(x, (0, widest - x.shape[-1])) for x in (q, k, v))
    causal = first == 0 and q.shape[2] == k.shape[2]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, logsumexp = kernel(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
    return out[..., :width], logsumexp


class _LearnedBias(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, first: int | None
    ) -> Tensor:
        out, logsumexp = _kernel(q, k, v, bias, scale, first)
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
        q_wide, k_wide, v_wide, dout_wide = (x.to(wide).contiguous() for x in (q, k, v, dout))
        q_wide = q_wide * ctx.scale
        q, k, dout = (x.to(q.dtype) for x in (q_wide, k_wide, dout_wide))
        dq = torch.empty_like(q)
        dk, dv = torch.zeros_like(k_wide), torch.zeros_like(v_wide)
        dbias = torch.zeros_like(bias, memory_format=torch.contiguous_format)
        size, keys = q.shape[:2].numel(), k.shape[2]
        block = max(16, BLOCK_ELEMENTS // (size * keys))
        later = torch.ones(block, block, dtype=torch.bool).triu(1)
        for start in range(0, q.shape[2], block):
            rows = slice(start, min(start + block, q.shape[2]))
            seen = slice(0, keys if ctx.first is None else min(keys, ctx.first + rows.stop))
            weights = q_wide[:, :, rows] @ k_wide[:, :, seen].mT
            at = ..., rows if bias.shape[2] > 1 else slice(None), seen
            weights.add_(bias[at]).sub_(logsumexp[:, :, rows]).exp_()
            if ctx.first is not None:
                own = weights[..., ctx.first + start :]
                own.masked_fill_(later[: own.shape[-2], : own.shape[-1]], 0.0)
            dlogits = dout_wide[:, :, rows] @ v_wide[:, :, seen].mT
            dlogits.sub_(mean[:, :, rows]).mul_(weights)
            dbias[at] += dlogits.sum_to_size(dbias[at].shape)
            weights, dlogits = weights.to(q.dtype), dlogits.to(q.dtype)
            dv[:, :, seen] += weights.mT @ dout[:, :, rows]
            dq[:, :, rows] = (dlogits @ k[:, :, seen]) * ctx.scale
            dk[:, :, seen] += dlogits.mT @ q[:, :, rows]
        return dq, dk.to(k.dtype), dv.to(v.dtype), dbias, None, None
