"""The one place that chooses how attention is computed.

Every path gives what `_reference` gives, forward and backward. A query that may look at nothing gets zeros.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from zoo.models.scores import Scores

BLOCK_ELEMENTS = 2**22
"""At evaluation no table of queries by keys holds more elements than this; longer ones go by blocks of
queries. Small enough that a processor's cache holds much of a block: larger tables are slower, and encodings
with many numbers for each pair (FIRE, DAPE, CoPE) several times so."""

GPU_BLOCKS = 16
"""How many times as large blocks are on a GPU, where many small ones would wait for one another's launch."""


def attend(q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float, kernel: str = "auto") -> Tensor:
    """softmax(scale q k^T + what the encodings add, masked) v, the logits of each query times its row scale.

    Args:
        q: queries [B,H,T,D]. k: keys [B,H,S,D]. v: values [B,H,S,D'].
        scale: what the products are multiplied by.
        kernel: `auto`, or one of `sdpa`, `flex`, `reference` to insist on it.

    Returns: [B,H,T,D'].

    Raises:
        ValueError: the kernel insisted on cannot compute what the encodings ask for.
    """
    kernel = choose(kernel, q, scores)
    if kernel == "flex":
        return _flex(q, k, v, scores, scale)
    if kernel == "sdpa" and not scores.has_bias and not scores.has_content:
        if scores.span.is_open():
            return _fused(scores.scaled_queries(q), k, v, scale=scale)
        if scores.span.is_plain_causal():
            return _fused(scores.scaled_queries(q), k, v, is_causal=True, scale=scale)
    path = _sdpa if kernel == "sdpa" else _reference
    elements = BLOCK_ELEMENTS * (GPU_BLOCKS if q.is_cuda else 1)
    block = max(16, elements // (q.shape[0] * q.shape[1] * k.shape[2]))
    if torch.is_grad_enabled() or block >= q.shape[2]:
        return path(q, k, v, scores, scale)
    out = None
    for start in range(0, q.shape[2], block):
        rows = scores.queries(start, min(start + block, q.shape[2]))
        seen = rows.span.num_keys
        part = path(q[:, :, start : start + block], k[:, :, :seen], v[:, :, :seen], rows, scale)
        # A list of parts would keep the heap from reusing the room of the tables between them.
        out = part.new_empty(*q.shape[:3], part.shape[-1]) if out is None else out
        out[:, :, start : start + block] = part
    return out


def cannot_compute(kernel: str, scores: Scores) -> str | None:
    """Why a kernel that is insisted on cannot compute these scores; None where it can."""
    if scores.needs_weights and kernel not in ("auto", "reference"):
        return f"kernel {kernel!r} keeps its weights to itself, and this encoding needs them: use auto"
    if kernel == "flex" and scores.has_content:
        return "kernel 'flex' takes pointwise biases only, and this encoding's depends on content: use auto"
    if kernel == "flex" and not scores.bias_is_fused:
        return (
            "kernel 'flex' takes pointwise biases only, and this encoding's is computed for all pairs at "
            "once: use auto"
        )
    return None


def choose(kernel: str, q: Tensor, scores: Scores) -> str:
    """The kernel for these scores: `sdpa`, `flex` or `reference`."""
    fault = cannot_compute(kernel, scores)
    if fault:
        raise ValueError(fault)
    if scores.needs_weights:
        return "reference"
    if kernel != "auto":
        return kernel
    # On CUDA FlexAttention never writes the table. Learned biases stay with SDPA: the gradients of captured
    # tensors have had defects (pytorch#145208, #157677).
    possible = scores.has_bias and scores.bias_is_fused and not scores.has_content
    fused = q.is_cuda and possible and not scores.bias_is_learned
    return "flex" if fused else "sdpa"


def _sdpa(q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float) -> Tensor:
    mask = scores.additive_mask(q, k)
    # cuDNN, first choice on Hopper, has defects with a mask (pytorch#196678, #191612).
    no_cudnn = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(no_cudnn) if q.is_cuda else nullcontext():
        return _fused(scores.scaled_queries(q), k, v, attn_mask=mask, scale=scale)


def _fused(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """SDPA, for values of another width than the keys too: no fused kernel of a CPU takes them as they are,
    and the plain one writes the table of scores. Zeros beside them change no product."""
    width = v.shape[-1]
    if width == k.shape[-1] or q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, **options)
    widest = max(width, k.shape[-1])
    q, k, v = (F.pad(x, (0, widest - x.shape[-1])) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, **options)[..., :width]


def _reference(q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float) -> Tensor:
    products = q @ k.transpose(-1, -2)
    logits = products.to(torch.promote_types(products.dtype, torch.float32)) * scale
    added = scores.added(q, k)
    if added is not None:
        logits = logits + added
    logits = scores.logits(logits, q, k)
    if not scores.span.is_open():
        logits = logits.masked_fill(~scores.span.allowed(), -torch.inf)
    # A row with nothing to look at would be NaN, in its gradient too: made harmless before and after.
    dead = logits.amax(-1, keepdim=True) == -torch.inf
    weights = logits.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0).to(v.dtype)
    out = weights @ v
    extra = scores.value(weights)
    return out if extra is None else out + extra


def _flex(q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float) -> Tensor:
    score_mod, mask_mod = scores.pointwise()
    block_mask = None
    if mask_mod is not None:
        memo, key = scores.span.memo, ("block mask", scores.span.window)
        if key not in memo:
            batch = None if scores.span.keep is None else q.shape[0]
            lengths = q.shape[2], k.shape[2]
            memo[key] = create_block_mask(mask_mod, batch, None, *lengths, device=q.device)
        block_mask = memo[key]
    q = scores.scaled_queries(q)
    if torch.compiler.is_compiling():
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask, scale=scale)
    return _compiled_flex()(q, k, v, score_mod=score_mod, block_mask=block_mask, scale=scale)


@lru_cache(maxsize=1)
def _compiled_flex():
    # Uncompiled it would write the table of scores after all.
    return torch.compile(flex_attention)
