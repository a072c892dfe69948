"""All ways to compute attention agree: kernels, forms of a bias, blocks of queries, torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from zoo.contract.causality import CACHED
from zoo.contract.law import (
    CAUSAL,
    PADDED,
    REPEATS,
    Finding,
    all_of,
    broken,
    decoders,
    farthest,
    held,
    law,
    within,
)
from zoo.contract.small_model import HEADS, Subject, keep_of
from zoo.encodings.base import Encoding, Span
from zoo.models import kernels
from zoo.models.cache import Cache

EQUAL = 1e-5
"""Largest difference between two ways to compute the same thing in float32."""

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 5},
    "padding": {"padding": (0, 4)},
    "window and padding": {"window": 5, "padding": (0, 4)},
}


def biased(subject: Subject) -> str | None:
    return None if any(e.uses("bias") for e in subject.encodings) else "it has no bias hook"


def needs_no_weights(subject: Subject) -> str | None:
    needs = any(e.uses("logits") or e.uses("value") for e in subject.encodings)
    return "it needs the attention weights, which no other kernel returns" if needs else None


def is_fused(subject: Subject) -> str | None:
    if not all(encoding.fused for encoding in subject.encodings if encoding.uses("bias")):
        return "it declares `fused = False`"
    return "its scores depend on content" if any(e.uses("score") for e in subject.encodings) else None


@law(
    "every kernel equals the reference",
    "Forward and backward, each kernel equals the plain computation.",
    needs_no_weights,
    needs=(PADDED, REPEATS),
)
def kernels_agree(subject: Subject) -> Finding:
    row, findings = subject.tokens(2, 12), []
    for name, layout in LAYOUTS.items():
        window, keep = layout.get("window"), keep_of(layout.get("padding"), 12)
        exact, model = (subject.model(kernel=kernel, window=window) for kernel in ("reference", "sdpa"))
        expected = exact(row, keep)
        actual = model(row, keep)
        real = torch.ones(2, 12, dtype=torch.bool) if keep is None else keep
        findings.append(within(farthest(actual[real], expected[real]), 2 * EQUAL, f"sdpa, {name}:"))
        weight = torch.randn(expected.shape) * real[..., None]
        for out in (actual, expected):
            (out * weight).mean().backward()
        findings.append(_gradients_agree(model, exact, f"sdpa backward, {name}:"))
    return all_of(findings)


@law(
    "the fused kernel equals the reference",
    "FlexAttention, which calls the bias point by point, equals the dense table; `fused` declares that it "
    "can.",
    biased,
    needs_no_weights,
    is_fused,
    needs=(PADDED, REPEATS),
)
def fused_kernel(subject: Subject) -> Finding:
    row, findings = subject.tokens(2, 12), []
    for name in ("plain", "window and padding") if subject.is_default else ("window and padding",):
        layout = LAYOUTS[name]
        window, keep = layout.get("window"), keep_of(layout.get("padding"), 12)
        exact, model = (subject.model(kernel=kernel, window=window) for kernel in ("reference", "flex"))
        # Uncompiled it calls the same functions, in the same way, and needs no compiler. On a CPU it has
        # no gradients.
        with changed(kernels, _compiled_flex=lambda: flex_attention), torch.no_grad():
            actual, expected = model(row, keep), exact(row, keep)
        real = slice(None) if keep is None else keep
        findings.append(within(farthest(actual[real], expected[real]), 2 * EQUAL, f"flex, {name}:"))
    return all_of(findings)


def _gradients_agree(model: torch.nn.Module, exact: torch.nn.Module, what: str) -> Finding:
    largest, difference = 0.0, 0.0
    for one, other in zip(model.parameters(), exact.parameters(), strict=True):
        if (one.grad is None) != (other.grad is None):
            return broken(f"{what} one has a gradient where the other has none")
        if one.grad is not None and other.grad is not None:
            difference = max(difference, farthest(one.grad, other.grad))
            largest = max(largest, other.grad.abs().max().item())
    return within(difference / max(largest, 1e-3), 1e-4, f"{what} of the largest gradient,")


@contextmanager
def changed(module: Any, **values: Any) -> Iterator[None]:
    """A module with other values inside the block."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@law(
    "all forms of a bias agree",
    "As a table, over distances and point by point, a bias and its gradient are the same.",
    biased,
)
def bias_forms_agree(subject: Subject) -> Finding:
    causal = subject.kind == "decoder"
    findings, count = [], 0
    for encoding in (e for e in subject.encodings if e.uses("bias")):
        for first, keys in ((0, 9), (5, 9), (8, 9)):
            pos = torch.arange(keys)
            spans = [
                Span(pos[first:], pos, first, causal, consecutive=True),
                Span(pos[first:], pos, first, causal),
                Span(pos[None, first:], pos[None], first, causal),
            ]
            seen = spans[0].allowed()
            made = [encoding.bias_table(span, HEADS) for span in spans]
            if made[0].dtype != torch.float32:
                return broken(f"a table of {made[0].dtype}, not float32")
            if made[0].shape[-3:] != (HEADS, keys - first, keys):
                return broken(f"a table {list(made[0].shape)} for {keys - first} queries and {keys} keys")
            if encoding.fused:
                head = torch.arange(HEADS)[:, None, None]
                made.append(encoding.bias(head, pos[first:, None], pos).expand(HEADS, -1, -1))
            # The bias of a masked key does not matter.
            tables = [table[0, :, seen] if table.dim() == 4 else table[:, seen] for table in made]
            gradients = [_gradients(encoding, table) for table in tables]
            for table, its in zip(tables[1:], gradients[1:], strict=True):
                findings.append(within(farthest(table, tables[0]), EQUAL))
                for one, other in zip(its, gradients[0], strict=True):
                    findings.append(within(farthest(one, other), 1e-4, "largest difference of gradients"))
            count += len(tables)
        if encoding.distance_only:
            near = torch.arange(40)
            tables = [encoding.bias_table(Span(p, p, 0, causal), HEADS) for p in (near, near + 977)]
            moved = farthest(tables[1], tables[0])
            findings.append(within(moved, 0.0, "distance_only, but a shift by 977 changes it by"))
    worst = all_of(findings)
    return Finding(worst.held, f"{count} tables; {worst.numbers}", worst.share)


def _gradients(encoding: Encoding, table: Tensor) -> list[Tensor]:
    """Gradients of a weighted sum of the table, with respect to every parameter."""
    if not table.requires_grad:
        return []
    finite = table.masked_fill(~table.isfinite(), 0.0)
    weight = torch.linspace(-1, 1, finite.numel()).view_as(finite)
    gradients = torch.autograd.grad((finite * weight).sum(), [*encoding.parameters()], allow_unused=True)
    return [torch.zeros(()) if gradient is None else gradient for gradient in gradients]


@law(
    "blocks of queries equal the full computation",
    "In evaluation a long sequence is computed in blocks of queries; the outputs equal those of one pass.",
    needs=(PADDED, CAUSAL, REPEATS),
)
def blocks_equal_full(subject: Subject) -> Finding:
    length, findings = 50, []
    for layout in ({}, {"window": 7}, {"padding": (0, 20)}, {"window": 7, "padding": (0, 20)}):
        model, row = subject.model(length=length, window=layout.get("window")), subject.tokens(2, length)
        keep = keep_of(layout.get("padding"), length)
        with torch.no_grad():
            full = model(row, keep)
            # The smallest block has 16 queries: three blocks and a rest.
            with changed(kernels, BLOCK_ELEMENTS=1):
                blocked = model(row, keep)
        real = slice(None) if keep is None else keep
        findings.append(within(farthest(blocked[real], full[real]), EQUAL))
    return all_of(findings)


@law(
    "blocks of queries work with a cache",
    "The same holds for tokens that are added to a cache.",
    decoders,
    needs=(CACHED,),
)
def blocks_with_a_cache(subject: Subject) -> Finding:
    model, row = subject.model(length=50), subject.tokens(2, 50)
    limit = model.encoding.max_cached_length
    if limit is not None and limit < 50:
        return held(f"a cache ends at {limit}")
    cache = Cache(model.num_layers)
    with torch.no_grad():
        full = model(row)
        with changed(kernels, BLOCK_ELEMENTS=1):
            parts = [model(part, cache=cache) for part in row.split([13, 37], 1)]
    return within(farthest(torch.cat(parts, 1), full), EQUAL)


@law(
    "torch.compile needs no graph break",
    "Compiled in training without a graph break, the model equals the uncompiled one.",
    needs=(REPEATS,),
    slow=True,
)
def one_graph(subject: Subject) -> Finding:
    model, row = subject.model().train(), subject.tokens(2, 12)
    torch.compiler.reset()
    try:
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        outputs = []
        for run in (compiled, model):
            torch.manual_seed(1)
            outputs.append(run(row))
        outputs[0].square().mean().backward()
    finally:
        torch.compiler.reset()
    return within(farthest(*outputs), EQUAL)
