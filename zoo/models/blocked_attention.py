"""Attention in training on a CPU: blocks of queries that stay in the processor's cache, with their gradients.

PyTorch's fused CPU kernel multiplies in small tiles and gives a bias no gradient, so that with a learned bias
SDPA falls back to plain operations that keep several tables [B,H,T,S]. Here each block of queries is a few
batched products over all heads, which skip the keys that none of the block sees; the backward pass computes
the attention weights again (Dao et al. 2022, arXiv:2205.14135, algorithm 4). Logits and softmax are computed
in float32 at least, the other products in the precision of the inputs. Memory is linear in length, but for
the bias itself.

Tensors have their shape in their name: N batch x heads, R queries of a block, K keys that they see, T
queries, S keys, D width of queries and keys, V width of values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_ELEMENTS = 2**20
"""Of a block's table [N,R,K]; larger ones fall out of the processor's cache, smaller ones cost more calls."""


class _Blocks:
    """The attention weights of one block of queries after the other."""

    def __init__(self, q: Tensor, k: Tensor, bias: Tensor | None, scale: float, first: int | None):
        self.batch_heads = q.shape[:2]
        wide = torch.promote_types(q.dtype, torch.float32)
        self.q_NTD, self.k_NSD = flat(q.to(wide) * scale), flat(k.to(wide))
        self.bias, self.first = bias, first
        size, queries, keys = self.batch_heads.numel(), q.shape[2], k.shape[2]
        self.rows = max(16, BLOCK_ELEMENTS // (size * keys))
        if first is not None:
            # Of few large blocks a causal mask would skip little.
            self.rows = min(self.rows, max(16, queries // 4))
        self.rows = min(self.rows, queries)
        # One allocation for all blocks: fresh pages cost more than the products.
        self.logits = q.new_empty(size * self.rows * keys, dtype=wide)
        self.weights = self.logits if wide == q.dtype else q.new_empty(size * self.rows * keys)
        self.later = torch.ones(self.rows, self.rows, dtype=torch.bool, device=q.device).triu(1)

    def __iter__(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Rows of queries, rows of keys, and the weights [N,R,K], which the next block overwrites."""
        size, queries, keys = self.q_NTD.shape[0], self.q_NTD.shape[1], self.k_NSD.shape[1]
        for start in range(0, queries, self.rows):
            rows = slice(start, min(start + self.rows, queries))
            seen = slice(0, keys if self.first is None else min(keys, self.first + rows.stop))
            shape = size, rows.stop - rows.start, seen.stop - seen.start
            logits = self.logits[: size * shape[1] * shape[2]].view(shape)
            torch.bmm(self.q_NTD[:, rows], self.k_NSD[:, seen].mT, out=logits)
            if self.first is not None:
                own = logits[..., self.first + start :]
                own.masked_fill_(self.later[: own.shape[1], : own.shape[2]], -torch.inf)
            blind = None
            if self.bias is not None:
                logits.view(*self.batch_heads, *shape[1:]).add_(self._bias(rows, seen))
                if (logits[..., 0] == -torch.inf).any():
                    blind = logits.amax(-1, keepdim=True) == -torch.inf
            weights = self.weights[: logits.numel()].view(shape)
            torch._softmax(logits, -1, False, out=logits)
            if weights.dtype != logits.dtype:
                weights.copy_(logits)
            if blind is not None:
                weights.masked_fill_(blind, 0.0)
            yield rows, seen, weights

    def _bias(self, rows: slice, seen: slice) -> Tensor:
        if self.bias.dim() == 2:
            # Each query begins a step further along the line than the one behind it.
            return self.bias[:, self._of_line(rows, seen)].unfold(-1, seen.stop, 1).flip(1)
        return self.bias[_of_table(self.bias, rows, seen)]

    def add_gradient(self, dbias: Tensor, dlogits_NRK: Tensor, rows: slice, seen: slice) -> None:
        """Add to the gradient of the bias that of a block's logits."""
        dlogits = dlogits_NRK.view(*self.batch_heads, *dlogits_NRK.shape[1:])
        if self.bias.dim() == 4:
            part = dbias[_of_table(dbias, rows, seen)]
            over = [i for i, size in enumerate(part.shape) if size == 1 < dlogits.shape[i]]
            if over:
                part += dlogits.sum(over, keepdim=True, dtype=dbias.dtype)
                return
            # Of full size: every block is written once, and later keys here.
            part.copy_(dlogits)
            dbias[:, :, rows, seen.stop :] = 0
            return
        heads = (0, 1) if len(self.bias) == 1 else 0
        by_row = dlogits.sum(heads, dtype=dbias.dtype).reshape(-1, *dlogits.shape[2:]).flip(1)
        # Row r begins at column r: with R zeros after each row, R less in all, every row moves by one.
        count, keys = by_row.shape[1:]
        shifted = F.pad(by_row, (0, count)).flatten(1)[:, :-count].unflatten(1, (count, count + keys - 1))
        dbias[:, self._of_line(rows, seen)] += shifted.sum(1)

    def _of_line(self, rows: slice, seen: slice) -> slice:
        queries = self.q_NTD.shape[1]
        return slice(queries - rows.stop, queries - rows.start + seen.stop - 1)


def _of_table(bias: Tensor, rows: slice, seen: slice) -> tuple[Any, ...]:
    """The index of a block in a table, which may be one row for all queries."""
    return ..., rows if bias.shape[2] > 1 else slice(None), seen


def flat(x: Tensor) -> Tensor:
    return x.flatten(0, 1).contiguous()


# Operators of their own, so that torch.compile leaves them as they are.
@torch.library.custom_op("zoo::blocked_attention", mutates_args=(), device_types="cpu")
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float,
    first: int | None,
) -> Tensor:
    """softmax(scale q k^T + bias) v, [B,H,T,V]; 0 for a query whose bias is -inf at every key.

    Args:
        q, k, v: [B,H,T,D], [B,H,S,D] and [B,H,S,V].
        bias: in float32 at least, [b,h,t,S] of full size or 1 in its first three dimensions; or a line of
            distances [h,T+S-1], from that of the last query to the first key.
        first: where queries see no later key, the row of the first query among the keys; else None.
    """
    v_NSV = flat(v)
    out = q.new_empty(*q.shape[:3], v.shape[-1])
    out_NTV = out.view(-1, *out.shape[2:])
    for rows, seen, weights in _Blocks(q, k, bias, scale, first):
        out_NTV[:, rows] = weights @ v_NSV[:, seen]
    return out


@attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[-1])


@torch.library.custom_op("zoo::blocked_attention_backward", mutates_args=(), device_types="cpu")
def _backward(
    dout: Tensor,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float,
    first: int | None,
    bias_has_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    blocks = _Blocks(q, k, bias, scale, first)
    wide = torch.promote_types(q.dtype, torch.float32)
    q_NTD, k_NSD, v_NSV, dout_NTV = flat(q), blocks.k_NSD.to(k.dtype), flat(v), flat(dout)
    # The weighted mean of a row's gradient, subtracted within the product: in low precision as two parts.
    mean = flat((dout.to(wide) * out).sum(-1, keepdim=True))
    high = mean.to(q.dtype)
    left = torch.cat((dout_NTV, -high, (high - mean).to(q.dtype)), -1)
    right = torch.cat((v_NSV, torch.ones_like(v_NSV[..., :1]).expand(-1, -1, 2)), -1)
    dq = torch.empty_like(q_NTD)
    dk, dv = torch.zeros_like(k_NSD, dtype=wide), torch.zeros_like(v_NSV, dtype=wide)
    dbias = torch.zeros(0, dtype=wide)
    if bias_has_gradient:
        summed = bias.dim() == 2 or bias.shape[:3] != q.shape[:3]
        dbias = (torch.zeros if summed else torch.empty)(bias.shape, dtype=wide)
    buffer = torch.empty_like(blocks.weights)
    for rows, seen, weights in blocks:
        dlogits = torch.bmm(left[:, rows], right[:, seen].mT, out=buffer[: weights.numel()].view_as(weights))
        dlogits.mul_(weights)
        if bias_has_gradient:
            blocks.add_gradient(dbias, dlogits, rows, seen)
        dv[:, seen] += weights.mT @ dout_NTV[:, rows]
        dq[:, rows] = dlogits @ k_NSD[:, seen]
        dk[:, seen] += dlogits.mT @ q_NTD[:, rows]
    dq, dk = dq.mul_(scale), dk.mul_(scale)
    return dq.view(q.shape), dk.to(k.dtype).view(k.shape), dv.to(v.dtype).view(v.shape), dbias


@_backward.register_fake
def _(dout: Tensor, out: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *options: Any):
    wide = torch.promote_types(q.dtype, torch.float32)
    dbias = q.new_empty(bias.shape if options[-1] else 0, dtype=wide)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), dbias


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, bias, *ctx.options = inputs
    ctx.save_for_backward(output, q, k, v, bias)


def _gradients(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
    learned = ctx.needs_input_grad[3]
    dq, dk, dv, dbias = _backward(dout, *ctx.saved_tensors, *ctx.options, learned)
    return dq, dk, dv, dbias if learned else None, None, None


attend.register_autograd(_gradients, setup_context=_save)
