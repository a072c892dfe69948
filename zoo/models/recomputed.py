"""Attention of which training keeps no table: blocks of queries, computed again in the backward pass.

Memory grows with the length and not with its square, whatever the encodings compute of a pair of tokens; as
gradient checkpointing (Chen et al. 2016, arXiv:1604.06174) by blocks instead of layers. The blocks that see
most keys come first, in both passes: what is freed of a table then has room for the next.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys, V
width of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from zoo.models.scores import ScoreTerms

Path = Callable[[Tensor, Tensor, Tensor, ScoreTerms, float], Tensor]


@torch.compiler.disable
def attend(
    path: Path, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float, rows: int
) -> Tensor:
    """What `path` gives of all queries, [B,H,T,V], computed for so many of them at a time."""
    given = [q_BHTD, k_BHSD, v_BHSV, *scores.tensors()]
    work = _Work(path, scores, scale, rows)
    return _Recomputed.apply(work, len(given), *given, *scores.parameters())


class _Work:
    """The blocks and what is computed of each."""

    def __init__(self, path: Path, scores: ScoreTerms, scale: float, rows: int):
        self.path, self.scores, self.scale = path, scores, scale
        self.blocks = [
            slice(start, min(start + rows, scores.context.num_queries))
            for start in reversed(range(0, scores.context.num_queries, rows))
        ]

    def views(self, given: Sequence[Tensor], block: slice) -> list[Tensor]:
        """The part of each tensor that a block reads."""
        scores = self.scores.with_tensors(given[3:]).queries(block.start, block.stop)
        seen = slice(0, scores.context.num_keys)
        return [given[0][:, :, block], given[1][:, :, seen], given[2][:, :, seen], *scores.tensors()]

    def output(self, views: Sequence[Tensor], block: slice) -> Tensor:
        scores = self.scores.queries(block.start, block.stop).with_tensors(views[3:])
        return self.path(*views[:3], scores, self.scale)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: _Work, count: int, *tensors: Tensor) -> Tensor:
        """`count` of the tensors are what blocks are parts of; the others are the encodings' parameters."""
        ctx.work, ctx.count, device = work, count, tensors[0].device.type
        ctx.save_for_backward(*tensors)
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.random = torch.get_rng_state(), *get_device_states(*tensors)
        given, out_BHTV = [x.detach() for x in tensors[:count]], None
        # With gradients the same kernels are chosen as in the backward pass.
        with torch.enable_grad():
            for block in work.blocks:
                part_BHTV = work.output(work.views(given, block), block).detach()
                if out_BHTV is None:
                    out_BHTV = part_BHTV.new_empty(*given[0].shape[:3], part_BHTV.shape[-1])
                out_BHTV[:, :, block] = part_BHTV
        return out_BHTV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        given = [x.detach() for x in tensors[: ctx.count]]
        # Of many blocks: in low precision the sums would lose digits.
        totals = [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) for x in tensors]
        device, dtype, enabled = ctx.autocast
        state, *others = ctx.random
        with torch.random.fork_rng(others[0]), torch.autocast(device, dtype, enabled):
            torch.set_rng_state(state)
            set_device_states(*others)
            for block in ctx.work.blocks:
                parts, learned = ctx.work.views(given, block), tensors[ctx.count :]
                parts = [x.detach().requires_grad_(n) for x, n in zip(parts, needed, strict=False)]
                into = [*ctx.work.views(totals[: ctx.count], block), *totals[ctx.count :]]
                with torch.enable_grad():
                    out_BHTV = ctx.work.output(parts, block)
                wanted = [
                    (x, total) for x, total in zip((*parts, *learned), into, strict=True) if x.requires_grad
                ]
                found = torch.autograd.grad(
                    out_BHTV, [x for x, _ in wanted], dout_BHTV[:, :, block], allow_unused=True
                )
                for (_, total), gradient in zip(wanted, found, strict=True):
                    if gradient is not None:
                        total += gradient
        gradients = (
            total.to(x.dtype) if n else None for total, x, n in zip(totals, tensors, needed, strict=True)
        )
        return None, None, *gradients
