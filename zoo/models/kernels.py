"""Chooses the attention kernel; no other file names one.

Every path equals `_reference`, forward and backward. The output of a query that may see no key is zero.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values. An encoding may change D, so it need not equal V.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from zoo.models import cpu_attention, recomputed
from zoo.models.scores import ScoreTerms, apply_mask

Path = Callable[[Tensor, Tensor, Tensor, ScoreTerms, float], Tensor]

BLOCK_ELEMENTS = 2**22
"""Most elements of a table [B,H,T,S] in evaluation and where it is recomputed; longer sequences are computed
in blocks of queries. Larger tables do not fit in a processor's cache and are slower."""

BLOCK_ROWS = 128
"""Queries of a causal block in training where autograd keeps its table, and half of those in evaluation where
no table is written: keys later than the last query are skipped."""

MOST_KEPT_ELEMENTS = 2**26
"""Largest score table, in elements per layer, that autograd may keep. Larger tables are recomputed in the
backward pass, a block of queries at a time, so that memory is linear in length for every encoding."""

GPU_FACTOR = 16
"""Factor of the size of blocks on a GPU, where launching many small kernels would dominate."""


def attend(
    q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float, kernel: str = "auto"
) -> Tensor:
    """softmax(scale q k^T + terms of the encodings, masked) v, the logits of each query times its row scale.

    An encoding may replace the softmax (`Encoding.weights`).

    Args:
        q_BHTD, k_BHSD, v_BHSV: queries, keys and values.
        scale: the factor of the products.
        kernel: `auto`, or one of `sdpa`, `flex`, `reference` to insist on it.

    Returns: [B,H,T,V].

    Raises:
        ValueError: the kernel insisted on cannot compute what the encodings ask for.
    """
    kernel = choose(kernel, q_BHTD, scores)
    if kernel == "flex":
        return _flex(q_BHTD, k_BHSD, v_BHSV, scores, scale)
    on_cpu, queries, context = cpu_attention.applies(q_BHTD), q_BHTD.shape[2], scores.context
    if kernel == "sdpa" and (context.is_open() or context.is_causal_to_the_end()):
        # A bias per key grows with the position; GPU kernels would round it to the dtype of the queries.
        bias_BH1S = scores.key_bias(k_BHSD) if on_cpu else None
        if bias_BH1S is not None or not scores.adds_any:
            return _without_table(q_BHTD, k_BHSD, v_BHSV, scores, scale, bias_BH1S)
    if kernel == "sdpa" and on_cpu and scores.is_by_distance():
        rows = queries if torch.is_grad_enabled() else 2 * BLOCK_ROWS
        return _in_blocks(_by_distance, q_BHTD, k_BHSD, v_BHSV, scores, scale, rows)
    path = _sdpa if kernel == "sdpa" else _reference
    elements = BLOCK_ELEMENTS * (GPU_FACTOR if q_BHTD.is_cuda else 1)
    rows = elements // (q_BHTD.shape[:2].numel() * k_BHSD.shape[2])
    if not torch.is_grad_enabled():
        return _in_blocks(path, q_BHTD, k_BHSD, v_BHSV, scores, scale, max(16, rows))
    if _keeps_too_much(q_BHTD, k_BHSD, scores, kernel):
        run = partial(path, scale=scale)
        return recomputed.attend(run, q_BHTD, k_BHSD, v_BHSV, scores, max(64, rows))
    # A compiler would write out the graph of every block.
    in_blocks = kernel == "reference" and context.causal and not torch.compiler.is_compiling()
    return _in_blocks(path, q_BHTD, k_BHSD, v_BHSV, scores, scale, BLOCK_ROWS if in_blocks else queries)


def _in_blocks(
    path: Path, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float, rows: int
) -> Tensor:
    """`path` of so many queries at a time, and of the keys that any of them may see."""
    if rows >= q_BHTD.shape[2]:
        return path(q_BHTD, k_BHSD, v_BHSV, scores, scale)
    out_BHTV = None
    for start in range(0, q_BHTD.shape[2], rows):
        block = slice(start, min(start + rows, q_BHTD.shape[2]))
        some = scores.queries(block.start, block.stop)
        seen = some.context.num_keys
        part_BHTV = path(q_BHTD[:, :, block], k_BHSD[:, :, :seen], v_BHSV[:, :, :seen], some, scale)
        # Collecting the parts in a list would keep the heap from reusing the memory of the tables.
        if out_BHTV is None:
            out_BHTV = part_BHTV.new_empty(*q_BHTD.shape[:3], part_BHTV.shape[-1])
        out_BHTV[:, :, block] = part_BHTV
    return out_BHTV


def _keeps_too_much(q_BHTD: Tensor, k_BHSD: Tensor, scores: ScoreTerms, kernel: str) -> bool:
    """Whether the largest table that autograd keeps of a layer is above the limit."""
    batch, heads, queries = q_BHTD.shape[:3]
    limit = MOST_KEPT_ELEMENTS
    if kernel == "sdpa":
        if not scores.adds_any:
            return False
        if q_BHTD.is_cuda:
            # A mask in low precision is kept, its gradient is not.
            limit *= GPU_FACTOR
        elif not scores.has_content and scores.context.documents is None:
            batch = 1  # one bias for all sequences
    return batch * heads * queries * k_BHSD.shape[2] > limit


def cannot_compute(kernel: str, scores: ScoreTerms) -> str | None:
    """The reason why a kernel that is insisted on cannot compute these scores; None where it can."""
    if scores.layer.weighing and kernel not in ("auto", "reference"):
        return f"kernel {kernel!r} computes a softmax, which this encoding replaces: use auto"
    if scores.needs_weights and kernel not in ("auto", "reference"):
        return f"kernel {kernel!r} does not return attention weights, which this encoding needs: use auto"
    if kernel == "flex" and scores.has_content:
        return "kernel 'flex' takes biases only, and this encoding's scores depend on content: use auto"
    return None


def choose(kernel: str, q_BHTD: Tensor, scores: ScoreTerms) -> str:
    """The kernel for these scores: `sdpa`, `flex` or `reference`."""
    fault = cannot_compute(kernel, scores)
    if fault:
        raise ValueError(fault)
    if scores.needs_weights:
        return "reference"
    if kernel != "auto":
        return kernel
    if not q_BHTD.is_cuda or not scores.has_bias:
        return "sdpa"
    # On CUDA FlexAttention never writes the table of scores. It takes heads of width 16 at least.
    possible = not scores.has_content and q_BHTD.shape[-1] >= 16
    fits = possible and scores.table_fits(q_BHTD.shape[1])
    if not scores.bias_learns:
        return "flex" if fits or (possible and scores.bias_is_fused) else "sdpa"
    # SDPA rounds the gradient of a bias to the precision of the queries: in bf16, sums over many pairs were
    # wrong by 7 %.
    of = q_BHTD.device, q_BHTD.dtype, q_BHTD.shape[-1]
    return "flex" if fits and bias_gradient_agrees(*of) else "reference"


@torch.compiler.assume_constant_result
def bias_gradient_agrees(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernel in Triton has the gradient of a plain softmax here; one line on stderr if not."""
    return _bias_gradient_agrees(device, dtype, width)


@lru_cache
def _bias_gradient_agrees(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    # Without autograd: the first call is in a forward pass, which may be one that a backward pass repeats.
    draw = partial(torch.randn, generator=torch.Generator("cpu").manual_seed(0), device="cpu")
    q, k, v, dout = draw(4, 2, 2, 70, width).to(device, dtype)
    bias, scale = draw(1, 2, 70, 70).to(device), width**-0.5
    seen = torch.ones(1, 70, 70, dtype=torch.bool, device=device).tril()
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        logits = (q.double() @ k.double().mT * scale + bias).masked_fill(~seen, -torch.inf)
        weights, gradients = logits.softmax(-1), dout.double() @ v.double().mT
        exact = (weights * (gradients - (weights * gradients).sum(-1, keepdim=True))).sum(0)
        try:
            from zoo.models.bias_gradient import bias_gradient

            found = bias_gradient(dout, bias, q, k, v, seen, 0, scale)[0]
            error = ((found - exact).norm() / exact.norm()).item()
            fault = f"is off by {error:.1%}" if not error < 1e-3 else None
        except Exception as raised:  # Triton and its compiler have many kinds
            fault = f"fails: {' '.join(str(raised).split())[:200]}"
    if fault:
        which = f"the gradient kernel of learned biases on {device} in {dtype}, heads of {width},"
        print(f"{which} {fault}: the slower reference kernel takes its place", file=sys.stderr, flush=True)
    return fault is None


def _by_distance(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float) -> Tensor:
    """Bias and mask depend on the distance alone. Keys outside a window are left out."""
    seen = scores.context.reach()
    first = scores.context.query_offset - seen.start if scores.context.causal else None
    q_BHTD, k_BHSD, v_BHSV = scores.scaled_queries(q_BHTD), k_BHSD[:, :, seen], v_BHSV[:, :, seen]
    line_HN = scores.line(q_BHTD, seen)
    return cpu_attention.attend(q_BHTD, k_BHSD, v_BHSV, line_HN, scale, first, by_distance=True)


def _without_table(
    q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float, bias_BH1S: Tensor | None
) -> Tensor:
    """Attention of queries that see every key, or the last queries of a sequence, each up to its own key."""
    q_BHTD, causal = scores.scaled_queries(q_BHTD), not scores.context.is_open()
    first = scores.context.query_offset if causal else None
    if cpu_attention.applies(q_BHTD):
        return cpu_attention.attend(q_BHTD, k_BHSD, v_BHSV, bias_BH1S, scale, first)
    if first:
        bias = causal_lower_right(q_BHTD.shape[2], k_BHSD.shape[2])
        return _fused(q_BHTD, k_BHSD, v_BHSV, attn_mask=bias, scale=scale)
    return _fused(q_BHTD, k_BHSD, v_BHSV, is_causal=causal, scale=scale)


def _sdpa(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float) -> Tensor:
    if cpu_attention.applies(q_BHTD):
        wide = torch.promote_types(q_BHTD.dtype, torch.float32)
        # In training the kernel hides later keys wherever the first query is.
        alone = torch.is_grad_enabled() and scores.context.only_causal_mask()
        bias = scores.additive_mask(
            q_BHTD, k_BHSD, wide, causal_in_kernel=alone or scores.context.is_plain_causal()
        )
        first = scores.context.query_offset if scores.context.causal else None
        return cpu_attention.attend(scores.scaled_queries(q_BHTD), k_BHSD, v_BHSV, bias, scale, first)
    mask = scores.additive_mask(q_BHTD, k_BHSD, q_BHTD.dtype)
    # cuDNN, first choice on Hopper, has defects with a mask (pytorch#196678, #191612).
    no_cudnn = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(no_cudnn) if q_BHTD.is_cuda else nullcontext():
        return _fused(scores.scaled_queries(q_BHTD), k_BHSD, v_BHSV, attn_mask=mask, scale=scale)


def _fused(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, **options: Any) -> Tensor:
    """PyTorch's kernels, also for values of another width than the keys: none on a CPU supports that, and the
    unfused one writes the table of scores. Padding with zeros changes no product."""
    width = v_BHSV.shape[-1]
    if width == k_BHSD.shape[-1] or (q_BHTD.is_cuda and k_BHSD.shape[-1]):
        return F.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSV, **options)
    widest = max(width, k_BHSD.shape[-1])
    q_BHTD, k_BHSD, v_BHSV = (F.pad(x, (0, widest - x.shape[-1])) for x in (q_BHTD, k_BHSD, v_BHSV))
    return F.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSV, **options)[..., :width]


def _reference(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float) -> Tensor:
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


def _flex(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float) -> Tensor:
    heads, table_GHTS = q_BHTD.shape[1], None
    if scores.has_bias and (scores.bias_learns or not scores.bias_is_fused or scores.table_fits(heads)):
        table_GHTS = scores.bias_of_pairs(heads)
    score_mod, mask_mod = scores.pointwise(None if table_GHTS is None else table_GHTS.detach())
    block_mask = None
    if mask_mod is not None:
        memo, key = scores.context.fixed, ("block mask", scores.context.window)
        if key not in memo:
            batch = q_BHTD.shape[0] if scores.context.masks_by_sequence else None
            lengths = q_BHTD.shape[2], k_BHSD.shape[2]
            memo[key] = _compiled(create_block_mask)(mask_mod, batch, None, *lengths, device=q_BHTD.device)
        block_mask = memo[key]
    q_BHTD = scores.scaled_queries(q_BHTD)
    attention = _compiled(flex_attention)
    # By default the kernel loads three tiles of keys and biases ahead, which do not fit on an H200.
    options = {"num_stages": 2}
    out_BHTV = attention(
        q_BHTD, k_BHSD, v_BHSV, score_mod, block_mask=block_mask, scale=scale, kernel_options=options
    )
    if not scores.bias_learns:
        return out_BHTV
    from zoo.models.bias_gradient import with_gradient  # Triton comes with PyTorch for a GPU alone

    context = scores.context
    ahead = context.query_offset if context.causal else context.num_keys
    memo, key = context.fixed, ("seen", context.window)
    if key not in memo:
        memo[key] = context.allowed().reshape(-1, context.num_queries, context.num_keys)
    return with_gradient(out_BHTV, table_GHTS, q_BHTD, k_BHSD, v_BHSV, memo[key], ahead, scale)


def _compiled(function: Callable) -> Callable:
    """A function of FlexAttention, which uncompiled would write a table of all pairs after all."""
    return function if torch.compiler.is_compiling() else _compiled_alone(function)


@lru_cache
def _compiled_alone(function: Callable) -> Callable:
    return torch.compile(function)
