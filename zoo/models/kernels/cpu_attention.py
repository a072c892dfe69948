"""Attention on a CPU: by blocks of our own in training, else by PyTorch's fused kernel.

That kernel takes a mask and a bias of any strides together, which SDPA refuses, so that no table is made
where a row will do.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values; b, h, t: batch, heads and queries of the bias, each of full size or 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.models.kernels import blocked_attention


def applies(q_BHTD: Tensor) -> bool:
    # Without gradients a compiler fuses plain operations itself.
    return q_BHTD.device.type == "cpu" and (torch.is_grad_enabled() or not torch.compiler.is_compiling())


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSV: Tensor,
    bias: Tensor | None,
    scale: float,
    first: int | None,
    by_distance: bool = False,
) -> Tensor:
    """softmax(scale q k^T + bias) v, [B,H,T,V]; 0 for a query whose bias is -inf at every key.

    Args:
        bias: broadcastable to [B,H,T,S], float, with -inf where a query may not see a key, kept in float32
            with narrower queries; or bool, True where a query may see a key.
        first: where queries see no later key, the row of the first query among the keys; else None. Where
            queries and keys are as many, the bias need not hide the later keys.
        by_distance: the bias is a line of distances, from that of the last query to the first key: [h,T+S-1]
            with h heads or 1.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q_BHTD, k_BHSD, v_BHSV = (x.to(dtype) for x in (q_BHTD, k_BHSD, v_BHSV))
    if bias is not None:
        wide = torch.promote_types(q_BHTD.dtype, torch.float32)
        if bias.dtype == torch.bool:
            bias = torch.zeros_like(bias, dtype=wide).masked_fill(~bias, -torch.inf)
        bias = bias.to(wide)
        if not by_distance:
            bias = bias[(None,) * (4 - bias.dim())].expand(-1, -1, -1, k_BHSD.shape[2])
    attend = blocked_attention.attend if torch.is_grad_enabled() else _fused
    return attend(q_BHTD, k_BHSD, v_BHSV, bias, scale, first)


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, first: int | None) -> Tensor:
    # The kernel requires a last stride of 1.
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if bias is not None and bias.dim() == 2:
        # Each query begins a step further along the line than the one behind it: a view, in turned order.
        table = bias.unfold(-1, k.shape[2], 1)[None]
        return _fused(q.flip(2), k, v, table, scale, first=None).flip(2)
    if bias is not None:
        # In this order: expanded, a row would become a table.
        bias = bias if bias.stride(-1) in (0, 1) else bias.contiguous()
        bias = bias.expand(*q.shape[:3], -1)
    if first and first + q.shape[2] == k.shape[2] and (bias is None or bias.stride(2) == 0):
        return _of_last(q, k, v, bias, scale, first)
    causal = first == 0 and q.shape[2] == k.shape[2]
    if q.shape[-1] == 0 and bias is not None and not causal:
        # There is nothing to multiply: the bias is all there is.
        blind = (bias[..., 0] == -torch.inf).any()
        return (torch._safe_softmax if blind else torch.softmax)(bias, -1).to(v.dtype) @ v
    return _flash(q, k, v, bias, scale, causal)[0]


def _flash(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """PyTorch's kernel: the output, and the logarithm of each query's sum [B,H,T]."""
    # It takes vectors of one width only; zeros change no product.
    width, widest = v.shape[-1], max(q.shape[-1], v.shape[-1])
    q, k, v = (x if x.shape[-1] == widest else F.pad(x, (0, widest - x.shape[-1])) for x in (q, k, v))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, total = kernel(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
    return out[..., :width], total


def _of_last(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, first: int) -> Tensor:
    """The same of the last queries of a sequence, without a table of their mask."""
    # None of the keys before them is hidden, and their own are plainly causal.
    before, own = (
        _flash(q, k[:, :, seen], v[:, :, seen], None if bias is None else bias[..., seen], scale, causal)
        for seen, causal in ((slice(first), False), (slice(first, None), True))
    )
    return torch.lerp(own[0], before[0], (before[1] - own[1]).sigmoid()[..., None].to(v.dtype))
