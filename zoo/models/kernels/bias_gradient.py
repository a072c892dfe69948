"""The gradient of a learned bias on a GPU, exact for the queries, keys and values given.

PyTorch's kernels take the sum of a row's weights times their gradients from an output rounded to bf16. So the
gradients of a row's logits do not sum to zero, and a bias learns from their sums over many queries: those of
FIRE and DPB were wrong by 2 to 7 % of their norm. Here that sum is formed in float32, like everything besides
the products. Each tile of queries and keys is computed again for one sequence after the other and written
once: memory is that of the bias, and the order of additions is fixed.

Tensors have their shape in their name: B batch, H heads, T queries, S keys, D width of queries and keys, V
width of values, G batch or 1.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64
"""Queries, and keys, of a tile."""
MOST_BYTES = 64 * 2**10
"""Shared memory for the tiles of queries, keys, values and gradients; wide heads get smaller tiles."""


def with_gradient(
    out_BHTV: Tensor,
    bias_GHTS: Tensor,
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSV: Tensor,
    seen_GTS: Tensor,
    ahead: int,
    scale: float,
) -> Tensor:
    """The output of attention by a kernel that was given the bias without its gradient.

    Args:
        seen_GTS: whether a query sees a key.
        ahead: the query in row t sees no key in a row after t + ahead.
        scale: the factor of the products of queries and keys.
    """
    return _WithGradient.apply(out_BHTV, bias_GHTS, q_BHTD, k_BHSD, v_BHSV, seen_GTS, ahead, scale)


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out_BHTV: Tensor, *given: Any) -> Tensor:
        *tensors, ctx.ahead, ctx.scale = given
        ctx.save_for_backward(*tensors)
        return out_BHTV.view_as(out_BHTV)

    @staticmethod
    def backward(ctx: Any, dout_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        return dout_BHTV, bias_gradient(dout_BHTV, *ctx.saved_tensors, ctx.ahead, ctx.scale), *[None] * 6


# An operator of its own, so that torch.compile leaves it as it is.
@torch.library.custom_op("zoo::bias_gradient", mutates_args=())
def bias_gradient(
    dout_BHTV: Tensor,
    bias_GHTS: Tensor,
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSV: Tensor,
    seen_GTS: Tensor,
    ahead: int,
    scale: float,
) -> Tensor:
    """The gradient of the bias, in float32, from that of the output."""
    batch, heads, queries, width = q_BHTD.shape
    keys, value_width = v_BHSV.shape[2:]
    q, k, v, dout = (x.to(q_BHTD.dtype).contiguous() for x in (q_BHTD, k_BHSD, v_BHSV, dout_BHTV))
    bias, seen = bias_GHTS.contiguous(), seen_GTS.to(torch.uint8).contiguous()
    padded = [max(16, triton.next_power_of_2(w)) for w in (width, value_width)]
    tile = TILE
    while tile > 16 and 2 * tile * sum(padded) * q.element_size() > MOST_BYTES:
        tile //= 2
    log_sums, means = (q.new_empty(batch, heads, queries, dtype=torch.float32) for _ in range(2))
    out, groups = torch.empty_like(bias), len(bias)
    given = (q, k, v, dout, bias, seen, log_sums, means)
    sizes = (heads, queries, keys, width, value_width, ahead, int(groups > 1), int(len(seen) > 1), scale)
    # Products of float32 numbers would be rounded to TF32.
    constants = {"DP": padded[0], "VP": padded[1], "TILE": tile,
                 "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32",
                 "num_warps": 8}  # with 4, heads of 64 spill registers  # fmt: skip
    tiles = triton.cdiv(queries, tile), triton.cdiv(keys, tile)
    _sums_of_rows[(tiles[0], batch * heads)](*given, *sizes, **constants, num_stages=1)
    _gradient_of_tile[(*tiles, groups * heads)](
        *given, out, batch // groups, *sizes, **constants, num_stages=2 if tile == TILE else 1
    )
    return out


@bias_gradient.register_fake
def _(dout_BHTV: Tensor, bias_GHTS: Tensor, *given: Any) -> Tensor:
    return torch.empty_like(bias_GHTS, memory_format=torch.contiguous_format)


@triton.jit
def _vectors(X, n, rows, count, WIDTH, PADDED: tl.constexpr):
    """The rows of a sequence's head in X [N,count,WIDTH], padded with zeros."""
    at = tl.arange(0, PADDED)[None, :]
    inside = (rows[:, None] < count) & (at < WIDTH)
    return tl.load(X + (n * count + rows[:, None]) * WIDTH + at, mask=inside, other=0.0)


@triton.jit
def _logits(Q, K, V, DOUT, BIAS, SEEN, n, rows, cols, H, T, S, D, W, bias_by_batch, seen_by_batch, scale,
            DP: tl.constexpr, VP: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """The logits of a tile, -inf where a query does not see a key, and the gradients of its weights."""
    b, h = n // H, n % H
    inside = (rows[:, None] < T) & (cols[None, :] < S)
    place = rows[:, None] * S + cols[None, :]
    seen = tl.load(SEEN + b * seen_by_batch * T * S + place, mask=inside, other=0) != 0
    bias = tl.load(BIAS + (b * bias_by_batch * H + h) * T * S + place, mask=seen, other=float("-inf"))
    q, k = _vectors(Q, n, rows, T, D, DP), _vectors(K, n, cols, S, D, DP)
    dout, v = _vectors(DOUT, n, rows, T, W, VP), _vectors(V, n, cols, S, W, VP)
    logits = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale + bias
    return logits, tl.dot(dout, tl.trans(v), input_precision=PRECISION)


@triton.jit
def _sums_of_rows(Q, K, V, DOUT, BIAS, SEEN, LOG_SUMS, MEANS, H, T, S, D, W, ahead, bias_by_batch,
                  seen_by_batch, scale, DP: tl.constexpr, VP: tl.constexpr, TILE: tl.constexpr,
                  PRECISION: tl.constexpr):  # fmt: skip
    """For each query the logarithm of the sum of the exponentials of its logits, +inf where it sees no key,
    and the mean of the gradients of its weights."""
    n = tl.program_id(1)
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    largest = tl.full((TILE,), float("-inf"), tl.float32)
    total, mean = tl.zeros((TILE,), tl.float32), tl.zeros((TILE,), tl.float32)
    for start in range(0, tl.minimum(S, (tl.program_id(0) + 1) * TILE + ahead), TILE):
        cols = start + tl.arange(0, TILE)
        logits, gradients = _logits(Q, K, V, DOUT, BIAS, SEEN, n, rows, cols, H, T, S, D, W, bias_by_batch,
                                    seen_by_batch, scale, DP, VP, PRECISION)  # fmt: skip
        new = tl.maximum(largest, tl.max(logits, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        weights, before = tl.exp(logits - safe[:, None]), tl.exp(largest - safe)
        total = total * before + tl.sum(weights, 1)
        mean = mean * before + tl.sum(weights * gradients, 1)
        largest = new
    blind = total == 0.0
    total = tl.where(blind, 1.0, total)
    tl.store(LOG_SUMS + n * T + rows, tl.where(blind, float("inf"), largest + tl.log(total)), mask=rows < T)
    tl.store(MEANS + n * T + rows, mean / total, mask=rows < T)


@triton.jit
def _gradient_of_tile(Q, K, V, DOUT, BIAS, SEEN, LOG_SUMS, MEANS, OUT, count, H, T, S, D, W, ahead,
                      bias_by_batch, seen_by_batch, scale, DP: tl.constexpr, VP: tl.constexpr,
                      TILE: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """The gradient of one tile of the bias, summed over `count` sequences."""
    group, h = tl.program_id(2) // H, tl.program_id(2) % H
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    cols = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    some_seen = tl.program_id(1) * TILE < (tl.program_id(0) + 1) * TILE + ahead
    for b in range(group * count, tl.where(some_seen, (group + 1) * count, 0)):
        n = b * H + h
        logits, gradients = _logits(Q, K, V, DOUT, BIAS, SEEN, n, rows, cols, H, T, S, D, W, bias_by_batch,
                                    seen_by_batch, scale, DP, VP, PRECISION)  # fmt: skip
        log_sum = tl.load(LOG_SUMS + n * T + rows, mask=rows < T, other=float("inf"))
        mean = tl.load(MEANS + n * T + rows, mask=rows < T, other=0.0)
        total += tl.exp(logits - log_sum[:, None]) * (gradients - mean[:, None])
    inside = (rows[:, None] < T) & (cols[None, :] < S)
    tl.store(OUT + (tl.program_id(2) * T + rows[:, None]) * S + cols[None, :], total, mask=inside)
