"""Shapes, precision, and that every way to compute it gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from zoo.contract.law import Finding, all_of, broken, decoders, farthest, held, law, within
from zoo.contract.subject import HEADS, VOCABULARY, WIDTH, Subject
from zoo.encodings.base import Encoding, Span
from zoo.encodings.stack import build_encoding
from zoo.errors import InputError
from zoo.models import kernels
from zoo.models.cache import Cache

MIXED = 0.1, 0.2
"""How far a bf16 pass of the small, lively models may be from float32: of the value, and at least."""
EQUAL = 1e-5
"""Two ways to compute one thing in float32."""

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 5},
    "padding": {"padding": (0, 4)},
    "window and padding": {"window": 5, "padding": (0, 4)},
}


def biased(subject: Subject) -> str | None:
    return None if any(e.uses("bias") for e in subject.encodings) else "it has no bias of positions alone"


def keep_of(padding: tuple[int, ...] | None, length: int) -> Tensor | None:
    """False at so many tokens at the beginning of each sequence."""
    return None if padding is None else torch.arange(length) >= torch.tensor(padding)[:, None]


@law("shapes and dtypes", "Logits have their shape, are finite, and are of the precision asked for.")
def shapes_and_dtypes(subject: Subject) -> Finding:
    row = subject.tokens(3, 9)
    model = subject.model()
    logits = model(row)
    if logits.shape != (3, 9, VOCABULARY) or logits.dtype != torch.float32:
        return broken(f"logits {list(logits.shape)} {logits.dtype}")
    if not logits.isfinite().all():
        return broken("logits that are not finite")
    pointer = subject.model(head="pointer")(row)
    if pointer.shape != (3, 9):
        return broken(f"a pointer's logits are {list(pointer.shape)}")
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(row)
    low, exact = subject.model().bfloat16(), subject.model()
    exact.load_state_dict({name: value.float() for name, value in low.state_dict().items()})
    return all_of([_near("autocast", mixed, logits), _near("a bf16 model", low(row), exact(row))])


def _near(what: str, low: Tensor, exact: Tensor) -> Finding:
    if low.dtype != torch.bfloat16:
        return broken(f"{what} gives {low.dtype}")
    if low.shape != exact.shape:
        return broken(f"{what} gives {list(low.shape)}")
    of_value, least = MIXED
    share = ((low.float() - exact).abs() / (least + of_value * exact.abs())).nan_to_num(nan=torch.inf).max()
    numbers = f"bf16 off by {farthest(low.float(), exact):.2g} ({share:.0%} of {least} + {of_value:.0%})"
    return Finding(bool(share <= 1), numbers, float(share))


@law(
    "it stays on its device", "What it makes is made where the model is; on a GPU nothing is left on the CPU."
)
def device(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(2, 9)
    keep = keep_of((0, 4), 9)
    # Whatever is made without saying where lands on another device than the model's.
    with torch.device("meta"):
        model(row, keep)
        if subject.kind == "decoder" and model.encoding.max_cached_length is None:
            cache = Cache(model.num_layers)
            model(row[:, :6], cache=cache)
            model(row[:, 6:], cache=cache)
    return held()


@law(
    "every kernel gives the reference",
    "Forward and backward, each kernel gives what the plain computation gives, or refuses.",
)
def kernels_agree(subject: Subject) -> Finding:
    row, findings = subject.tokens(2, 12), []
    for name, layout in LAYOUTS.items():
        window, keep = layout.get("window"), keep_of(layout.get("padding"), 12)
        exact, model = (subject.model(kernel=kernel, window=window) for kernel in ("reference", "sdpa"))
        expected = exact(row, keep)
        try:
            actual = model(row, keep)
        except ValueError as error:
            if not str(error).startswith("kernel 'sdpa' "):
                raise
            return held("sdpa is refused: the weights are needed")
        real = torch.ones(2, 12, dtype=torch.bool) if keep is None else keep
        findings.append(within(farthest(actual[real], expected[real]), 2 * EQUAL, f"sdpa, {name}:"))
        weight = torch.randn(expected.shape) * real[..., None]
        for out in (actual, expected):
            (out * weight).mean().backward()
        findings.append(_gradients_agree(model, exact, f"sdpa backward, {name}:"))
    return all_of(findings)


@law(
    "the fused kernel gives the reference",
    "FlexAttention calls the bias point by point, and gives what the table gives; `fused` says that it can.",
    biased,
)
def fused_kernel(subject: Subject) -> Finding:
    row, findings = subject.tokens(2, 12), []
    for name in ("plain", "window and padding") if subject.is_default else ("window and padding",):
        layout = LAYOUTS[name]
        window, keep = layout.get("window"), keep_of(layout.get("padding"), 12)
        exact, model = (
            subject.model(kernel=kernel, window=window, num_layers=1) for kernel in ("reference", "flex")
        )
        try:
            # Uncompiled it calls the same functions, in the same way, and needs no compiler. It knows no
            # gradients on a CPU.
            with changed(kernels, _compiled_flex=lambda: flex_attention), torch.no_grad():
                actual, expected = model(row, keep), exact(row, keep)
        except ValueError as error:
            if not str(error).startswith("kernel 'flex' "):
                raise
            return held(f"flex is refused{'' if _all_fused(subject) else ': not fused'}")
        real = slice(None) if keep is None else keep
        findings.append(within(farthest(actual[real], expected[real]), 2 * EQUAL, f"flex, {name}:"))
    return all_of(findings)


def _all_fused(subject: Subject) -> bool:
    return all(encoding.fused for encoding in subject.encodings)


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
    """A module with other values for a while."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@law(
    "a bias is one function",
    "As a table, over distances and point by point, a bias and its gradient are the same.",
    biased,
)
def bias_is_one_function(subject: Subject) -> Finding:
    causal = subject.kind == "decoder"
    findings, told = [], 0
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
            # Who may not be looked at may have any bias.
            tables = [table[0, :, seen] if table.dim() == 4 else table[:, seen] for table in made]
            gradients = [_gradients(encoding, table) for table in tables]
            for table, its in zip(tables[1:], gradients[1:], strict=True):
                findings.append(within(farthest(table, tables[0]), EQUAL))
                for one, other in zip(its, gradients[0], strict=True):
                    findings.append(within(farthest(one, other), 1e-4, "largest difference of gradients"))
            told += len(tables)
        if encoding.distance_only:
            near = torch.arange(40)
            tables = [encoding.bias_table(Span(p, p, 0, causal), HEADS) for p in (near, near + 977)]
            moved = farthest(tables[1], tables[0])
            findings.append(within(moved, 0.0, "distance_only, and moved by 977 it changes by"))
    worst = all_of(findings)
    return Finding(worst.held, f"{told} tables; {worst.numbers}", worst.share)


def _gradients(encoding: Encoding, table: Tensor) -> list[Tensor]:
    """Of a weighting of the table, in every parameter that it depends on."""
    if not table.requires_grad:
        return []
    finite = table.masked_fill(~table.isfinite(), 0.0)
    weight = torch.linspace(-1, 1, finite.numel()).view_as(finite)
    gradients = torch.autograd.grad((finite * weight).sum(), [*encoding.parameters()], allow_unused=True)
    return [torch.zeros(()) if gradient is None else gradient for gradient in gradients]


@law(
    "blocks of queries give the whole",
    "At evaluation a long sequence goes in blocks of queries, and comes out as if it went whole.",
)
def blocks_give_the_whole(subject: Subject) -> Finding:
    length, findings = 50, []
    for layout in ({}, {"window": 7}, {"padding": (0, 20)}, {"window": 7, "padding": (0, 20)}):
        model, row = subject.model(length=length, window=layout.get("window")), subject.tokens(2, length)
        keep = keep_of(layout.get("padding"), length)
        with torch.no_grad():
            whole = model(row, keep)
            # 16 is the least block: three and a rest.
            with changed(kernels, BLOCK_ELEMENTS=1):
                blocked = model(row, keep)
        real = slice(None) if keep is None else keep
        findings.append(within(farthest(blocked[real], whole[real]), EQUAL))
    return all_of(findings)


@law(
    "blocks of queries go with a cache",
    "So it is for the tokens that come after a past.",
    decoders,
)
def blocks_with_a_cache(subject: Subject) -> Finding:
    model, row = subject.model(length=50), subject.tokens(2, 50)
    limit = model.encoding.max_cached_length
    if limit is not None and limit < 50:
        return held(f"a cache ends at {limit}")
    cache = Cache(model.num_layers)
    with torch.no_grad():
        whole = model(row)
        with changed(kernels, BLOCK_ELEMENTS=1):
            parts = [model(part, cache=cache) for part in row.split([13, 37], 1)]
    return within(farthest(torch.cat(parts, 1), whole), EQUAL)


@law(
    "torch.compile takes it in one graph",
    "Compiled without a graph break, in training, it gives what it gives uncompiled.",
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


FAR, STRETCH = 100_000, 16


@law(
    "places are exact in bf16 at position 100,000",
    "What is looked up or turned is off by 2^-8 of its length at most, a product by 2^-5 of the largest.",
)
def far_in_bf16(subject: Subject) -> Finding:
    """bf16 counts exactly to 256 only, so places and angles must be float32 and rounded once, at the end."""
    findings = []
    for spec in subject.spec if isinstance(subject.spec, list) else [subject.spec]:
        low, start = _reaching(spec, subject)
        exact = build_encoding(spec, low.size).eval()
        low = low.bfloat16().eval()
        exact.load_state_dict({name: value.float() for name, value in low.state_dict().items()})
        with torch.no_grad():
            findings += _far(subject, low, exact, start)
    return all_of(findings) if findings else held("it makes nothing of places")


def _reaching(spec: Any, subject: Subject) -> tuple[Encoding, int]:
    """The encoding, made so large that it knows the places to try; and the first of those."""
    encoding = build_encoding(spec, subject.size())
    if encoding.max_length is None and encoding.num_positions is None:
        return encoding, FAR
    try:
        return build_encoding(spec, subject.size(length=FAR + STRETCH)), FAR
    except InputError:
        # An option says how far it goes: as far as that, then.
        ends = [end for end in (encoding.max_length, encoding.num_positions) if end is not None]
        return encoding, min(ends) - STRETCH


def _far(subject: Subject, low: Encoding, exact: Encoding, start: int) -> list[Finding]:
    causal = subject.kind == "decoder"
    ids, near = torch.arange(start, start + STRETCH), torch.arange(STRETCH)
    x = torch.randn(1, STRETCH, WIDTH).bfloat16()
    q, k = torch.randn(2, 1, HEADS, STRETCH, WIDTH // HEADS).bfloat16()
    raw = torch.randn(1, HEADS, STRETCH, STRETCH)

    def hooks(encoding: Encoding, at: Tensor, cast) -> dict[str, Tensor | None]:
        given = {"x": cast(x), "q": cast(q), "k": cast(k)}
        torch.manual_seed(1)
        pos = encoding.positions(at, 1)
        if pos.dtype in (torch.bfloat16, torch.float16):
            raise TypeError(f"positions of {pos.dtype}: exact to 256 only")
        span = Span(pos, pos, 0, causal, read=encoding.read(given["x"]))
        made: dict[str, Tensor | None] = {}
        if encoding.uses("embed"):
            made["embed"] = encoding.embed(given["x"], pos)
        if encoding.uses("rotate"):
            made["rotate q"], made["rotate k"] = encoding.rotate(given["q"], given["k"], span)
        if encoding.uses("bias"):
            made["bias"] = encoding.bias_table(span, HEADS)
        if encoding.uses("score"):
            made["score"] = encoding.score(given["q"], given["k"], span)
        if encoding.uses("logits"):
            made["logits"] = encoding.logits(raw, given["q"], given["k"], span)
        if encoding.uses("value"):
            weights = raw.masked_fill(~span.allowed(), -torch.inf).softmax(-1)
            made["value"] = encoding.value(cast(weights), span)
        return made

    with torch.autocast("cpu", torch.bfloat16):
        given = hooks(low, ids, lambda t: t.bfloat16())
        at_start = hooks(low, near, lambda t: t.bfloat16())
    expected = hooks(exact, ids, lambda t: t.float())
    span = Span(near, near, 0, causal)
    findings = []
    for hook, value in given.items():
        right = expected[hook]
        if value is None or right is None:
            continue
        findings.append(
            _rounded_once(hook, value.float(), right, {"rotate q": q, "rotate k": k}.get(hook), span)
        )
        if hook == "bias" and low.relative:
            moved = farthest(*(t[..., span.allowed()] for t in (value, at_start[hook])))
            findings.append(within(moved, 0.0, "bias there against position 0:"))
    return findings


def _rounded_once(hook: str, actual: Tensor, exact: Tensor, whole: Tensor | None, span: Span) -> Finding:
    if actual.shape != exact.shape:
        return broken(f"{hook}: {list(actual.shape)} in bf16, {list(exact.shape)} in float32")
    if hook in ("bias", "score", "logits"):
        # Beyond the mask anything may stand.
        seen = span.allowed()
        actual, exact = (t.expand(*t.shape[:-2], *seen.shape)[..., seen] for t in (actual, exact))
    off = (actual - exact).abs().masked_fill(actual == exact, 0.0).nan_to_num(nan=torch.inf)
    if whole is not None:
        # The length of a turned vector bounds the rounding of each component.
        length = torch.maximum(whole.float().norm(dim=-1, keepdim=True), exact.norm(dim=-1, keepdim=True))
        share, bound = off / (2**-8 * length), "2^-8 of a vector's length"
    elif hook == "bias":
        share, bound = off / (2**-8 * (1 + exact.abs())), "2^-8 of 1 + the value"
    elif hook == "embed":
        share, bound = off / (2**-7 * (1 + exact.abs())), "2^-7 of 1 + the value"
    else:
        largest = exact[exact.isfinite()].abs().max().clamp(min=1e-3)
        share, bound = off / (2**-5 * largest), "2^-5 of the largest"
    worst = float(share.max())
    return Finding(worst <= 1, f"{hook}: {worst:.0%} of the bound, {bound}", worst)
