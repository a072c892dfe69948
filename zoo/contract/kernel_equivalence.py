"""All ways to compute attention agree: kernels, forms of a bias, blocks of queries, torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from zoo.contract.causality import CACHED, decoded
from zoo.contract.law import CAUSAL, PADDED, REPEATS, Outcome, failed, farthest, law, only, within
from zoo.contract.subject import HEADS, Subject, keep_of
from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext
from zoo.models.kernels import blocked_attention
from zoo.models.plans import choose, flex

EQUAL = 1e-5
"""Largest difference between two ways to compute the same thing in float32."""
SMALLEST_BLOCKS = mock.patch.object(choose, "BLOCK_ELEMENTS", 1)
"""Blocks of 16 queries, in training of 64."""
NO_TABLE_KEPT = mock.patch.object(choose, "MOST_KEPT_ELEMENTS", 0)
NO_WEIGHTS_KEPT = mock.patch.object(blocked_attention, "KEPT_LENGTH", 0)
"""In training, as if every table were too large and every sequence a long one."""

LAYOUTS: dict[str, dict[str, Any]] = {
    # The last block of 16, 64 or 128 queries has a single query.
    "plain": {"length": 129},
    "window": {"window": 5},
    "padding": {"padding": (0, 4)},
    "window and padding": {"window": 5, "padding": (0, 4)},
}
SINKS: dict[str, dict[str, Any]] = {
    "sink tokens and padding": {**LAYOUTS["window and padding"], "sink_tokens": 2}
}
"""For decoders only."""

biased = only("it has no bias hook", lambda subject: any(e.uses("bias") for e in subject.encodings))
needs_no_weights = only(
    "it needs the logits or the attention weights, which no other kernel returns",
    lambda subject: not any(e.uses(h) for e in subject.encodings for h in ("logits", "weights", "value")),
)
is_fused = only(
    "it declares `fused = False`, or its scores depend on content",
    lambda subject: not any(e.uses("score") or (e.uses("bias") and not e.fused) for e in subject.encodings),
)


def _in_layout(subject: Subject, kernel: str, name: str) -> Iterator[tuple[torch.nn.Module, Tensor]]:
    """A model with a kernel, then one with the reference, each with its outputs at real tokens."""
    layout = (LAYOUTS | SINKS)[name]
    subject = replace(subject, length=layout.get("length", subject.length))
    row = subject.tokens(2, layout.get("length", 13))
    keep = keep_of(layout.get("padding"), row.shape[1])
    real = slice(None) if keep is None else keep
    for one in (kernel, "reference"):
        setting = {key: value for key, value in layout.items() if key in ("window", "sink_tokens")}
        model = subject.model(kernel=one, **setting)
        yield model, model(row, keep)[real]


@law(
    "every kernel equals the reference",
    "Forward and backward, each kernel equals the plain computation.",
    needs_no_weights,
    needs=(PADDED, REPEATS),
)
def kernels_agree(subject: Subject) -> Iterator[Outcome]:
    # By default training on a CPU takes a kernel of the zoo's own, and SDPA is for evaluation.
    names = [*LAYOUTS, *(SINKS if subject.takes_sinks else ())]
    for kernel, name in [*(("auto", name) for name in names), ("sdpa", "window and padding")]:
        (model, actual), (exact, expected) = _in_layout(subject, kernel, name)
        yield within(farthest(actual, expected), 2 * EQUAL, f"{kernel}, {name}:")
        weight = torch.randn_like(expected)
        for out in (actual, expected):
            (out * weight).mean().backward()
        pairs = [
            (one.grad, other.grad) for one, other in zip(model.parameters(), exact.parameters(), strict=True)
        ]
        if any((one is None) != (other is None) for one, other in pairs):
            yield failed(f"{kernel} backward, {name}: one has a gradient where the other has none")
        pairs = [pair for pair in pairs if pair[0] is not None]
        largest = max((other.abs().max().item() for _, other in pairs), default=0.0)
        difference = max((farthest(*pair) for pair in pairs), default=0.0)
        what = f"{kernel} backward, {name}: of the largest gradient,"
        yield within(difference / max(largest, 1e-3), 1e-4, what)


@law(
    "all forms of a bias agree",
    "As a table, over distances and point by point, a bias and its gradient are the same.",
    biased,
)
def bias_forms_agree(subject: Subject) -> Iterator[Outcome]:
    causal = subject.kind == "decoder"
    for encoding in (e for e in subject.encodings if e.uses("bias")):
        for first, keys in ((0, 9), (5, 9), (8, 9)):
            pos = torch.arange(keys)
            contexts = [
                AttentionContext(pos[first:], pos, first, causal, consecutive=True),
                AttentionContext(pos[first:], pos, first, causal),
                AttentionContext(pos[None, first:], pos[None], first, causal),
            ]
            tables = [encoding.bias_table(context, HEADS) for context in contexts]
            if tables[0].dtype != torch.float32:
                yield failed(f"a table of {tables[0].dtype}, not float32")
            if tables[0].shape[-3:] != (HEADS, keys - first, keys):
                yield failed(f"a table {list(tables[0].shape)} for {keys - first} queries and {keys} keys")
            if encoding.fused:
                head = torch.arange(HEADS)[:, None, None]
                tables.append(encoding.bias(head, pos[first:, None], pos).expand(HEADS, -1, -1))
            # The bias of a masked key does not matter.
            seen = contexts[0].allowed()
            tables = [(table[0] if table.dim() == 4 else table)[:, seen] for table in tables]
            gradients = _gradients(encoding, tables[0])
            for table in tables[1:]:
                yield within(farthest(table, tables[0]), EQUAL)
                for one, other in zip(_gradients(encoding, table), gradients, strict=True):
                    yield within(farthest(one, other), 1e-4, "largest difference of gradients")
        if encoding.distance_only:
            near = torch.arange(40)
            tables = [
                encoding.bias_table(AttentionContext(p, p, 0, causal), HEADS) for p in (near, near + 977)
            ]
            yield within(farthest(*tables), 0.0, "distance_only, but a shift by 977 changes it by")


def _gradients(encoding: Encoding, table: Tensor) -> list[Tensor]:
    """Gradients of a weighted sum of the table, with respect to every parameter."""
    if not table.requires_grad:
        return []
    finite = table.masked_fill(~table.isfinite(), 0.0)
    weight = torch.linspace(-1, 1, finite.numel()).view_as(finite)
    return [*torch.autograd.grad((finite * weight).sum(), [*encoding.parameters()], materialize_grads=True)]


@law(
    "blocks of queries equal the full computation",
    "In evaluation a long sequence is computed in blocks of queries, whose rows among the keys begin at "
    "`context.query_offset`; the outputs equal those of one pass, with a cache too.",
    needs=(PADDED, CAUSAL, REPEATS, CACHED),
)
@torch.no_grad()
def blocks_equal_full(subject: Subject) -> Iterator[Outcome]:
    length = 65  # the last block has a single query
    subject = replace(subject, length=length)
    row, padded = subject.tokens(2, length), keep_of((0, 20), length)
    cached = subject.stack.max_cached_length
    for setting in subject.windows(7):
        model = subject.model(**setting)
        full, full_padded = model(row), model(row, padded)
        with SMALLEST_BLOCKS:
            blocked, blocked_padded = model(row), model(row, padded)
        yield within(farthest(blocked, full), EQUAL)
        yield within(farthest(blocked_padded[padded], full_padded[padded]), EQUAL)
        if subject.kind == "decoder" and (cached is None or cached >= length):
            with SMALLEST_BLOCKS:
                in_two = decoded(model, row, [16, 49])
            yield within(farthest(in_two, full), EQUAL)


@law(
    "the fused kernel equals the reference",
    "FlexAttention, which calls the bias point by point, equals the dense table; `fused` declares that it "
    "can.",
    biased,
    needs_no_weights,
    is_fused,
    needs=(PADDED, REPEATS),
)
def fused_kernel(subject: Subject) -> Iterator[Outcome]:
    names = ["window and padding", *(SINKS if subject.takes_sinks else ())]
    for name in ["plain", *names] if subject.is_default else names:
        # Uncompiled it calls the same functions, in the same way, and needs no compiler. On a CPU it has
        # no gradients.
        alone = mock.patch.object(flex, "_compiled_alone", lambda function: function)
        pair_by_pair = mock.patch.object(flex, "MOST_FIXED", 0)
        with alone, pair_by_pair, torch.no_grad():
            (_, actual), (_, expected) = _in_layout(subject, "flex", name)
        yield within(farthest(actual, expected), 2 * EQUAL, f"flex, {name}:")


@law(
    "torch.compile needs no graph break",
    "Compiled in training without a graph break, the model equals the uncompiled one.",
    needs=(REPEATS,),
    slow=True,
)
def one_graph(subject: Subject) -> Iterator[Outcome]:
    model, row = subject.model().train(), subject.tokens(2, 13)
    torch.manual_seed(1)
    expected = model(row)
    torch.compiler.reset()
    try:
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.manual_seed(1)
        output = compiled(row)
        output.square().mean().backward()
    finally:
        torch.compiler.reset()
    yield within(farthest(output, expected), EQUAL)
