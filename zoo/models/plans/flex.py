"""The plan of FlexAttention, for biases on a GPU: they are computed pair by pair or looked up in a table.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values, G batch or 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from zoo.encodings.context import sees
from zoo.models.scores import ScoreTerms

MOST_FIXED, MOST_LEARNED = 2**26, 2**30
"""Largest table of a bias, in elements per layer, that FlexAttention looks up. A learned bias has no other
form in training: its gradient is such a table too."""


@dataclass(frozen=True)
class Flex:
    """Attention with biases, which never writes the table of scores."""

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        table_GHTS = None
        if scores.layer.biased and (learns(scores) or not is_fused(scores) or table_fits(q_BHTD, scores)):
            table_GHTS = bias_of_pairs(scores, q_BHTD.shape[1])
        score_mod, mask_mod = pointwise(scores, None if table_GHTS is None else table_GHTS.detach())
        context = scores.context
        block_mask, memo, key = None, context.fixed, ("block mask", context.window)
        if mask_mod is not None:
            if key not in memo:
                batch = q_BHTD.shape[0] if context.masks_by_sequence else None
                lengths = q_BHTD.shape[2], k_BHSD.shape[2]
                make, device = _compiled(create_block_mask), q_BHTD.device
                memo[key] = make(mask_mod, batch, None, *lengths, device=device)
            block_mask = memo[key]
        q_BHTD = scores.scaled_queries(q_BHTD)
        # By default the kernel loads three tiles of keys and biases ahead, which do not fit on an H200.
        options = {"num_stages": 2}
        out_BHTV = _compiled(flex_attention)(
            q_BHTD, k_BHSD, v_BHSV, score_mod, block_mask=block_mask, scale=scale, kernel_options=options
        )
        if not learns(scores):
            return out_BHTV
        # Triton comes with PyTorch for a GPU alone.
        from zoo.models.kernels.bias_gradient import with_gradient

        ahead, key = context.query_offset if context.causal else context.num_keys, ("seen", context.window)
        if key not in memo:
            memo[key] = context.allowed().reshape(-1, context.num_queries, context.num_keys)
        return with_gradient(out_BHTV, table_GHTS, q_BHTD, k_BHSD, v_BHSV, memo[key], ahead, scale)


def learns(scores: ScoreTerms) -> bool:
    """Whether the backward pass needs the gradient of the bias of a pair of positions, scaled."""
    if not scores.layer.biased or not torch.is_grad_enabled():
        return False
    scaled = scores.row_scale is not None and not scores.row_scale.shared
    return scaled or any(next(one.parameters(), None) is not None for one, _ in scores.using("biased"))


def is_fused(scores: ScoreTerms) -> bool:
    """Whether every bias can be computed pair by pair."""
    return all(one.fused for one, _ in scores.using("biased"))


def table_fits(q_BHTD: Tensor, scores: ScoreTerms) -> bool:
    """Whether the bias is looked up in a table of all pairs."""
    vary = [x for _, one in scores.using("biased") for x in (one.q_pos, one.k_pos) if x.dim() == 2]
    if scores.row_scale is not None:
        vary.append(scores.row_scale.factor_BHT1)
    batch = max([1, *map(len, vary)])  # torch.compile cannot follow `default=`
    elements = batch * q_BHTD.shape[1] * scores.context.num_queries * scores.context.num_keys
    return elements <= (MOST_LEARNED if learns(scores) else MOST_FIXED)


def bias_of_pairs(scores: ScoreTerms, heads: int) -> Tensor:
    """The biases of all pairs, scaled, [G,H,T,S] in float32."""
    table = scores.once("bias", lambda: scores.bias(heads))
    table = table if table.dim() == 4 else table[None]
    return table if scores.row_scale is None else scores.row_scale.of_table(table)


def pointwise(
    scores: ScoreTerms, table_GHTS: Tensor | None = None
) -> tuple[Callable | None, Callable | None]:
    """(score modification, mask modification) as FlexAttention takes them; None where there is none.

    The scores that it modifies are products of `scaled_queries`. The bias of a pair is looked up in the
    table, or computed.
    """
    context, scale = scores.context, scores.row_scale
    biased = scores.using("biased")

    def position(pos: Tensor, b: Tensor, row: Tensor) -> Tensor:
        return pos[row] if pos.dim() == 1 else pos[b if pos.shape[0] > 1 else 0, row]

    def add_bias(score: Tensor, b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
        if table_GHTS is not None:
            return score + table_GHTS[b if len(table_GHTS) > 1 else 0, h, row, column]
        for encoding, one in biased:
            query = position(one.q_pos, b, row)
            if one.sinks is not None:
                sink = position(one.sinks.keys, b, column)
                query = torch.where(sink, position(one.sinks.q_pos, b, row), query)
            bias = encoding.bias(h, query, position(one.k_pos, b, column))
            score = score + (bias if scale is None else scale.of_point(bias, b, h, row))
        return score

    def is_visible(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
        sink = None if context.sinks is None else position(context.sinks.keys, b, column)
        allowed = sees(row + context.query_offset, column, context.causal, context.window, sink)
        if context.documents is not None:
            own = context.documents[b, row + context.query_offset]
            allowed = allowed & (own == context.documents[b, column])
        return allowed if context.keep is None else allowed & context.keep[b, column]

    return (add_bias if biased else None), (None if context.is_open() else is_visible)


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
            from zoo.models.kernels.bias_gradient import bias_gradient

            found = bias_gradient(dout, bias, q, k, v, seen, 0, scale)[0]
            error = ((found - exact).norm() / exact.norm()).item()
            fault = f"is off by {error:.1%}" if not error < 1e-3 else None
        except Exception as raised:  # Triton and its compiler have many kinds
            fault = f"fails: {' '.join(str(raised).split())[:200]}"
    if fault:
        which = f"the gradient kernel of learned biases on {device} in {dtype}, heads of {width},"
        print(f"{which} {fault}: the slower reference kernel takes its place", file=sys.stderr, flush=True)
    return fault is None


def _compiled(function: Callable) -> Callable:
    """A function of FlexAttention, which uncompiled would write a table of all pairs after all."""
    return function if torch.compiler.is_compiling() else _compiled_alone(function)


@lru_cache
def _compiled_alone(function: Callable) -> Callable:
    return torch.compile(function)
