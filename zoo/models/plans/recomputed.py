"""The plan whose backward pass recomputes a block of queries at a time.

Memory grows with the length and not with its square, for any function of a pair of tokens:
gradient checkpointing (Chen et al. 2016, arXiv:1604.06174) by blocks of queries. `torch.utils.checkpoint` of
each block keeps the gradients of its keys until all blocks are done, a tensor each; here every block adds to
one. The blocks that see most keys come first, in both passes: the next ones fit into the memory they free.

Tensors have their shape in their name: B batch, T queries, S keys, H heads, D width of queries and keys,
V width of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from zoo.models.plans.plan import Plan
from zoo.models.scores import ScoreTerms

Run = Callable[[Tensor, Tensor, Tensor, ScoreTerms], Tensor]


@dataclass(frozen=True)
class Recomputed:
    """`plan` for `rows` queries at a time, each block of which the backward pass computes again."""

    plan: Plan
    rows: int

    def attend(
        self, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float
    ) -> Tensor:
        return attend(partial(self.plan.attend, scale=scale), q_BHTD, k_BHSD, v_BHSV, scores, self.rows)


@torch.compiler.disable
def attend(run: Run, q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, rows: int) -> Tensor:
    """The output of `run`, [B,H,T,V], computed for so many queries at a time."""
    given = [q_BHTD, k_BHSD, v_BHSV, *scores.tensors()]
    # Autograd alone keeps the tensors, so that a checkpoint around this frees them.
    scores = scores.with_tensors(x.new_empty(0) for x in given[3:])
    return _Recomputed.apply(run, scores, rows, len(given), *given, *scores.parameters())


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Run, scores: ScoreTerms, rows: int, count: int, *tensors: Tensor) -> Tensor:
        """The first `count` tensors are cut into blocks, the others are parameters of the encodings."""
        given, out_BHTV = [x.detach() for x in tensors[:count]], None
        ctx.save_for_backward(*given)
        ctx.of = run, scores, rows
        device = given[0].device.type
        ctx.autocast = device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.random = torch.get_rng_state(), *get_device_states(*given)
        for block in _blocks(given[0], rows):
            some, parts = _cut(scores, given, block)
            with torch.enable_grad():  # as in the backward pass, where the same kernels are to be chosen
                part_BHTV = run(*parts[:3], some).detach()
            if out_BHTV is None:
                out_BHTV = part_BHTV.new_empty(*given[0].shape[:3], part_BHTV.shape[-1])
            out_BHTV[:, :, block] = part_BHTV
        return out_BHTV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        (run, scores, rows), given, needed = ctx.of, ctx.saved_tensors, ctx.needs_input_grad[4:]
        learned = scores.parameters()
        # Every block adds to the gradients of the keys: in low precision the sums would lose digits.
        totals = [
            torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) for x in (*given, *learned)
        ]
        state, devices, states = ctx.random
        device, dtype, enabled = ctx.autocast
        with torch.random.fork_rng(devices):
            torch.set_rng_state(state)
            set_device_states(devices, states)
            for block in _blocks(dout_BHTV, rows):
                some, parts = _cut(scores, given, block)
                parts = [x.detach().requires_grad_(n) for x, n in zip(parts, needed, strict=False)]
                with torch.enable_grad(), torch.autocast(device, dtype, enabled):
                    out_BHTV = run(*parts[:3], some.with_tensors(parts[3:]))
                into = [*_cut(scores, totals[: len(given)], block)[1], *totals[len(given) :]]
                wanted = [(x, to) for x, to in zip((*parts, *learned), into, strict=True) if x.requires_grad]
                gradients = torch.autograd.grad(
                    out_BHTV, [x for x, _ in wanted], dout_BHTV[:, :, block], allow_unused=True
                )
                for gradient, (_, to) in zip(gradients, wanted, strict=True):
                    if gradient is not None:
                        to += gradient
        inputs = zip(totals, (*given, *learned), needed, strict=True)
        return None, None, None, None, *(total.to(x.dtype) if n else None for total, x, n in inputs)


def _blocks(q_BHTD: Tensor, rows: int) -> list[slice]:
    queries = q_BHTD.shape[2]
    return [slice(start, min(start + rows, queries)) for start in reversed(range(0, queries, rows))]


def _cut(scores: ScoreTerms, given: Sequence[Tensor], block: slice) -> tuple[ScoreTerms, list[Tensor]]:
    """The terms of a block of queries, and the views of the given tensors that it reads."""
    some = scores.with_tensors(given[3:]).queries(block.start, block.stop)
    seen = some.context.num_keys
    q_BHTD, k_BHSD, v_BHSV = given[0][:, :, block], given[1][:, :, :seen], given[2][:, :, :seen]
    return some, [q_BHTD, k_BHSD, v_BHSV, *some.tensors()]
