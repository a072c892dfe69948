"""Attention in training on a CPU: blocks of queries that stay in the processor's cache, with their gradients.

PyTorch's fused CPU kernel multiplies in small tiles and gives a bias no gradient, so that with a learned bias
SDPA falls back to plain operations that keep several tables [B,H,T,S]. Here each block of queries is a few
batched products over all heads, which skip the keys that none of the block sees. Of short sequences the
attention weights are kept for the backward pass, of longer ones they are computed again (Dao et al. 2022,
arXiv:2205.14135, algorithm 4), to the same bits. Logits and softmax are computed in float32 at least, the
other products in the precision of the inputs. Memory is linear in length, but for the bias itself.

Tensors have their shape in their name: N batch x heads, R queries of a block, K keys that they see, T
queries, S keys, D width of queries and keys, V width of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

BLOCK_ROWS = 128
"""Queries of a block. Products with fewer rows are slow: in bf16 with 12 heads of width 64, 16 sequences of
1,024 tokens take 0.35 s forward and backward by 128 rows, 0.43 by 64, 0.64 by 32 and 1.03 by 16."""

BLOCK_ELEMENTS = 2**21
"""Elements of a block's table [N,R,K] per thread, which fit the cache; batches are split into groups. Without
groups the 16 sequences above take 0.40 s."""

MOST_ELEMENTS = 2**24
"""Upper limit of a block's table, for the memory. A single long sequence uses fewer rows per block."""

KEPT_LENGTH = 16
"""The longest sequence whose weights are kept, in head widths: at most that many times the memory of q."""


class _Blocks:
    """The attention weights of one block of queries after the other.

    Args:
        dtype: of the weights.
        kept: where the weights of all blocks are stored one after the other, or None.
        computed: `kept` contains them already.
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        bias: Tensor | None,
        scale: float,
        first: int | None,
        dtype: torch.dtype,
        kept: Tensor | None = None,
        computed: bool = False,
    ):
        self.batch_heads = q.shape[:2]
        wide = torch.promote_types(q.dtype, torch.float32)
        self.queries, self.keys = q.shape[2], k.shape[2]
        self.bias, self.first = bias, first
        self.rows = rows_of_block(q, k, first)
        self.scale, self.dtype, self.kept, self.computed = scale, dtype, kept, computed
        if self.computed:
            return
        self.q_NTD, self.k_NSD = flat(q.to(wide)), flat(k.to(wide))
        self.narrow = q.dtype
        self.later = torch.full((self.rows, self.rows), -torch.inf, dtype=wide).triu(1)
        # One allocation for all blocks: fresh pages cost more than the products.
        self.weights = None if kept is not None else self.table_of_block(dtype)
        self.logits = None if wide == dtype else self.table_of_block(wide)

    def table_of_block(self, dtype: torch.dtype) -> Tensor:
        return torch.empty(self.batch_heads.numel() * self.rows * self.keys, dtype=dtype)

    def _parts(self) -> Iterator[tuple[slice, slice]]:
        """Rows of queries, rows of the keys that they see."""
        for start in range(0, self.queries, self.rows):
            stop = min(start + self.rows, self.queries)
            seen = self.keys if self.first is None else min(self.keys, self.first + stop)
            yield slice(start, stop), slice(0, seen)

    def __iter__(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Rows of queries, rows of keys, and the weights [N,R,K], which the next block may overwrite."""
        begin = 0
        for rows, seen in self._parts():
            shape = self.batch_heads.numel(), rows.stop - rows.start, seen.stop
            table = self.weights if self.kept is None else self.kept[begin:]
            weights = table[: math.prod(shape)].view(shape)
            begin += weights.numel()
            if not self.computed:
                self._compute(rows, seen, weights)
            yield rows, seen, weights

    def _compute(self, rows: slice, seen: slice, weights: Tensor) -> None:
        logits = weights if self.logits is None else self.logits[: weights.numel()].view_as(weights)
        q, k = self.q_NTD[:, rows], self.k_NSD[:, seen]
        with _products_of(self.narrow):
            torch.baddbmm(logits, q, k.mT, beta=0, alpha=self.scale, out=logits)
        if self.first is not None:
            own = logits[..., self.first + rows.start :]
            own.add_(self.later[: own.shape[1], : own.shape[2]])
        blind = None
        if self.bias is not None:
            logits.view(*self.batch_heads, *logits.shape[1:]).add_(self._bias(rows, seen))
            if (logits[..., 0] == -torch.inf).any():
                blind = logits.amax(-1, keepdim=True) == -torch.inf
        torch._softmax(logits, -1, False, out=logits)
        if weights is not logits:
            weights.copy_(logits)
        if blind is not None:
            weights.masked_fill_(blind, 0.0)

    def _bias(self, rows: slice, seen: slice) -> Tensor:
        if self.bias.dim() == 2:
            # Each query begins a step further along the line than the one behind it. A flip would write the
            # table in the order of columns, which is slow to add.
            turned = torch.arange(rows.stop - rows.start - 1, -1, -1)
            return self.bias[:, self._of_line(rows, seen)].unfold(-1, seen.stop, 1).index_select(1, turned)
        return self.bias[_of_table(self.bias, rows, seen)]

    def add_gradient(
        self, dbias: Tensor, dlogits_NRK: Tensor, rows: slice, seen: slice, written: bool
    ) -> None:
        """Add to the gradient of the bias that of a block's logits. `written`: another group's is there."""
        dlogits = dlogits_NRK.view(*self.batch_heads, *dlogits_NRK.shape[1:])
        if self.bias.dim() == 4:
            part = dbias[_of_table(dbias, rows, seen)]
            over = [i for i, size in enumerate(part.shape) if size == 1 < dlogits.shape[i]]
            # The shape of the block does not decide this: the last one may have a single query.
            if self.bias.shape[2] < self.queries or written:
                part += dlogits.sum(over, keepdim=True, dtype=dbias.dtype) if over else dlogits
                return
            # With a row for each query every block is first written here, and so are later keys.
            if over == [0]:
                _sum_of_sequences(dlogits, out=part[0])
            elif over:
                torch.sum(dlogits, over, keepdim=True, dtype=dbias.dtype, out=part)
            else:
                part.copy_(dlogits)
            dbias[:, :, rows, seen.stop :] = 0
            return
        if len(self.bias) == 1:
            dlogits = dlogits_NRK[:, None]
        count, keys = dlogits.shape[2:]
        width = count + keys - 1
        padded = dbias.new_empty(len(self.bias), count * width + count - 1)
        padded[:, : count - 1] = 0
        by_row = padded[:, count - 1 :].unflatten(1, (count, width))
        _sum_of_sequences(dlogits, out=by_row[..., :keys])
        by_row[..., keys:] = 0
        # Row r begins count - 1 - r columns into the line: read as if rows were one longer, they align.
        aligned = padded.as_strided((len(padded), count, width), (padded.shape[1], width + 1, 1))
        dbias[:, self._of_line(rows, seen)] += aligned.sum(1)

    def _of_line(self, rows: slice, seen: slice) -> slice:
        return slice(self.queries - rows.stop, self.queries - rows.start + seen.stop - 1)


def _sum_of_sequences(x: Tensor, out: Tensor) -> None:
    if len(x) > 4:
        torch.sum(x, 0, dtype=out.dtype, out=out)
        return
    # For few and large sequences torch.sum takes twice as long.
    out.copy_(x[0])
    for other in x[1:]:
        out.add_(other)


def _of_table(bias: Tensor, rows: slice, seen: slice) -> tuple[Any, ...]:
    """The index of a block in a table, which may be one row for all queries."""
    return ..., rows if bias.shape[2] > 1 else slice(None), seen


def rows_of_block(q: Tensor, k: Tensor, first: int | None) -> int:
    size, queries = q.shape[:2].numel(), q.shape[2]
    rows = min(BLOCK_ROWS, max(16, MOST_ELEMENTS // (size * k.shape[2])))
    if first is not None:
        # With few large blocks a causal mask would skip little.
        rows = min(rows, max(64, queries // 4))
    return min(rows, queries)


def kept_elements(q: Tensor, k: Tensor, first: int | None) -> int:
    """Upper bound on the number of weights in all blocks."""
    size, queries, keys = q.shape[:2].numel(), q.shape[2], k.shape[2]
    if first is not None:
        # The mean of what the first and the last block see, where all have as many rows.
        keys = first + (queries + rows_of_block(q, k, first) + 1) // 2
    return size * queries * keys


def group_size(q: Tensor, k: Tensor) -> int:
    """The number of sequences that are taken at a time."""
    elements = BLOCK_ELEMENTS * _threads()
    return max(1, elements // (q.shape[1] * min(BLOCK_ROWS, q.shape[2]) * k.shape[2]))


@torch.compiler.assume_constant_result
def _threads() -> int:
    return torch.get_num_threads()


def sequences(q: Tensor, group: int) -> Iterator[slice]:
    """The slices of the batch, one for each group of sequences."""
    for start in range(0, len(q), group):
        yield slice(start, start + group)


def of_group(bias: Tensor | None, some: slice) -> Tensor | None:
    """The bias of these sequences: a line of distances and a table for all are theirs too."""
    return bias if bias is None or bias.dim() == 2 or len(bias) == 1 else bias[some]


def _groups(
    q: Tensor,
    k: Tensor,
    bias: Tensor | None,
    kept: Tensor,
    scale: float,
    first: int | None,
    group: int,
    dtype: torch.dtype,
    computed: bool = False,
) -> Iterator[tuple[slice, _Blocks]]:
    """The sequences of one group after the other, with their blocks. `kept` is for the weights of all groups,
    or is empty."""
    for some in sequences(q, group):
        own = None
        if kept.numel():
            own, kept = kept.tensor_split([kept_elements(q[some], k[some], first)])
        yield some, _Blocks(q[some], k[some], of_group(bias, some), scale, first, dtype, own, computed)


def flat(x: Tensor) -> Tensor:
    return x.flatten(0, 1).contiguous()


@contextmanager
def _products_of(dtype: torch.dtype) -> Iterator[None]:
    """Multiply float32 tensors that hold bf16 numbers at the speed of bf16, with float32 sums."""
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    if dtype == torch.bfloat16:
        setting.fp32_precision = "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before


# Operators of their own, so that torch.compile leaves them as they are.
@torch.library.custom_op("zoo::blocked_attention", mutates_args=(), device_types="cpu")
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float,
    first: int | None,
    group: int,
    keep: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """The output, and the weights in the precision `keep`, or an empty tensor."""
    out, kept = _empty_outputs(q, k, v, first, group, keep)
    for some, blocks in _groups(q, k, bias, kept, scale, first, group, kept.dtype):
        v_NSV, out_NTV = flat(v[some]), out[some].flatten(0, 1)
        for rows, seen, weights in blocks:
            torch.bmm(weights.to(v.dtype), v_NSV[:, seen], out=out_NTV[:, rows])
    return out, kept


def _empty_outputs(
    q: Tensor, k: Tensor, v: Tensor, first: int | None, group: int, keep: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    kept = sum(kept_elements(q[some], k[some], first) for some in sequences(q, group)) if keep else 0
    return q.new_empty(*q.shape[:3], v.shape[-1]), q.new_empty(kept, dtype=keep or q.dtype)


@_attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, *options: Any):
    return _empty_outputs(q, k, v, *options)


@torch.library.custom_op("zoo::blocked_attention_backward", mutates_args=(), device_types="cpu")
def _backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    kept: Tensor,
    scale: float,
    first: int | None,
    group: int,
    bias_has_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v))
    dbias = torch.zeros(0, dtype=wide)
    if bias_has_gradient:
        summed = bias.dim() == 2 or bias.shape[2] < q.shape[2]
        dbias = (torch.zeros if summed else torch.empty)(bias.shape, dtype=wide)
    # The gradients of a row's logits sum to zero. Rounded to bf16 they would not, and the sums over queries
    # that a bias of each key learns from would be noise.
    dtype = wide if bias_has_gradient else q.dtype
    for some, blocks in _groups(q, k, bias, kept, scale, first, group, dtype, computed=kept.numel() > 0):
        given = (x[some] for x in (dout, q, k, v, dq))
        into = of_group(dbias, some) if bias_has_gradient else None
        parts = _backward_of_group(blocks, *given, into, written=into is dbias and some.start > 0)
        for total, part in zip((dk[some], dv[some]), parts, strict=True):
            total.copy_(part.view(total.shape))
    return dq, dk, dv, dbias


def _backward_of_group(
    blocks: _Blocks,
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dq: Tensor,
    dbias: Tensor | None,
    written: bool,
) -> tuple[Tensor, Tensor]:
    """Adds to the gradient of the bias and writes that of the queries, [N,T,D]; returns those of keys and
    values, [N,S,D] and [N,S,V] in float32 at least."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q_NTD, k_NSD, v_NSV, dout_NTV = flat(q), flat(k), flat(v), flat(dout)
    dq_NTD = dq.flatten(0, 1)
    dk, dv = torch.zeros_like(k_NSD, dtype=wide), torch.zeros_like(v_NSV, dtype=wide)
    left, right = dout_NTV.to(blocks.dtype), v_NSV.to(blocks.dtype)
    buffer = blocks.table_of_block(blocks.dtype)
    for rows, seen, weights in blocks:
        dweights = buffer[: weights.numel()].view_as(weights)
        with _products_of(q.dtype):
            torch.bmm(left[:, rows], right[:, seen].mT, out=dweights)
        dlogits = torch._softmax_backward_data(dweights, weights, -1, weights.dtype, grad_input=dweights)
        if dbias is not None:
            blocks.add_gradient(dbias, dlogits, rows, seen, written)
        dlogits = dlogits.to(q.dtype)
        dv[:, seen] += torch.bmm(weights.to(q.dtype).mT, dout_NTV[:, rows])
        torch.bmm(dlogits, k_NSD[:, seen], out=dq_NTD[:, rows])
        dk[:, seen] += torch.bmm(dlogits.mT, q_NTD[:, rows])
    dq_NTD.mul_(blocks.scale)
    return dk.mul_(blocks.scale), dv


@_backward.register_fake
def _(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *options: Any):
    wide = torch.promote_types(q.dtype, torch.float32)
    dbias = q.new_empty(bias.shape if options[-1] else 0, dtype=wide)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), dbias


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, bias, *ctx.options, _ = inputs
    _, kept = output
    ctx.mark_non_differentiable(kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, bias, kept)


def _gradients(ctx: Any, dout: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if dout is None:
        return (None,) * 8
    learned = ctx.needs_input_grad[3]
    dq, dk, dv, dbias = _backward(dout, *ctx.saved_tensors, *ctx.options, learned)
    return dq, dk, dv, dbias if learned else None, *(None,) * 4


_attend.register_autograd(_gradients, setup_context=_save)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, first: int | None) -> Tensor:
    """softmax(scale q k^T + bias) v, [B,H,T,V]; 0 for a query whose bias is -inf at every key.

    Args:
        q, k, v: [B,H,T,D], [B,H,S,D] and [B,H,S,V].
        bias: in float32 at least, [b,h,t,S] of full size or 1 in its first three dimensions; or a line of
            distances [h,T+S-1], from that of the last query to the first key.
        first: where queries see no later key, the row of the first query among the keys; else None.
    """
    # Copied once, here, and not in the backward pass again.
    q, k, v = (x.contiguous() for x in (q, k, v))
    trained = any(x is not None and x.requires_grad for x in (q, k, v, bias))
    keep = None
    if trained and k.shape[2] <= KEPT_LENGTH * q.shape[3]:
        keep = bias.dtype if bias is not None and bias.requires_grad else q.dtype
    return _attend(q, k, v, bias, scale, first, group_size(q, k), keep)[0]
