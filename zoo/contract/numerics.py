"""Devices, precision and state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from zoo.contract.hook_outputs import watched
from zoo.contract.law import PADDED, REPEATS, Outcome, beyond, failed, farthest, law, passed, within
from zoo.contract.subject import HEADS, WIDTH, Subject, keep_of
from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import build_encoding
from zoo.errors import InputError
from zoo.models.cache import Cache

PRECISION = "precision"
OF_VALUE, LEAST = 0.1, 0.2
"""Bounds on a bf16 pass of the small models with large weights against float32: relative, and absolute."""


@law(
    PRECISION,
    "Under autocast and as a bf16 model, hooks return the precision of their inputs, and logits are close "
    "to those of float32.",
)
def precision(subject: Subject) -> Iterator[Outcome]:
    row, model = subject.tokens(3, 9), subject.model()
    with torch.autocast(row.device.type, torch.bfloat16), watched(model):
        mixed = model(row)
    low, exact = subject.model().bfloat16(), subject.model()
    exact.load_state_dict({name: value.float() for name, value in low.state_dict().items()})
    with watched(low):
        reduced = low(row)
    for what, actual, expected in (("autocast", mixed, model(row)), ("a bf16 model", reduced, exact(row))):
        if actual.dtype != torch.bfloat16 or actual.shape != expected.shape:
            yield failed(f"{what} gives {actual.dtype} {list(actual.shape)}")
        bound = LEAST + OF_VALUE * expected.abs()
        off = farthest(actual.float() / bound, expected / bound)
        yield within(off, 1.0, f"{what}, in units of {LEAST} + {OF_VALUE:.0%} of the logit, off by")


@law(
    "tensors stay on the model's device",
    "Every tensor that it creates is on the model's device; on a GPU none is left on the CPU.",
    needs=(PADDED,),
)
def device(subject: Subject) -> Iterator[Outcome]:
    model, row, keep = subject.model(), subject.tokens(2, 9), keep_of((0, 4), 9)
    # A tensor created without a device lands on another one than the model's.
    with torch.device("meta"):
        model(row, keep)
        if subject.kind == "decoder" and model.encoding.max_cached_length is None:
            cache = Cache(model.num_layers)
            model(row[:, :6], cache=cache)
            model(row[:, 6:], cache=cache)
    yield passed()


FAR, STRETCH = 100_000, 17


@law(
    "positions are exact in bf16 at 100,000",
    "Embedded and rotated vectors are off by at most 2^-8 of their length, products by at most 2^-5 of "
    "the largest.",
    needs=(PRECISION,),
)
def far_in_bf16(subject: Subject) -> Iterator[Outcome]:
    """bf16 counts exactly to 256 only, so positions and angles must be float32, rounded once at the end."""
    yield passed("no hook has values at far positions to compare")
    causal = subject.kind == "decoder"
    near = torch.arange(STRETCH)
    for spec in subject.spec if isinstance(subject.spec, list) else [subject.spec]:
        low, start = _reaching(spec, subject)
        exact = build_encoding(spec, low.size).eval()
        x = torch.randn(1, STRETCH, WIDTH).bfloat16()
        q, k = torch.randn(2, 1, HEADS, STRETCH, WIDTH // HEADS).bfloat16()
        context = AttentionContext(near, near, 0, causal)
        # With parameters in float32, as training in mixed precision has them, and then in bf16.
        for convert in (low.eval, low.bfloat16):
            part = convert()
            exact.load_state_dict({name: value.float() for name, value in part.state_dict().items()})
            with torch.no_grad():
                with torch.autocast(x.device.type, torch.bfloat16):
                    actual = _results(part, start, causal, x, q, k)
                    at_start = _results(part, 0, causal, x, q, k)
                expected = _results(exact, start, causal, x.float(), q.float(), k.float())
            for hook, value in actual.items():
                rotated = {"rotate q": q, "rotate k": k}.get(hook)
                yield _rounded_once(hook, value.float(), expected[hook], rotated, context)
        if "bias" in actual and low.relative:
            moved = farthest(*(made["bias"][..., context.allowed()] for made in (actual, at_start)))
            yield within(moved, 0.0, "bias there against position 0:")


def _reaching(spec: Any, subject: Subject) -> tuple[Encoding, int]:
    """The encoding, built large enough for the positions to try; and the first of those."""
    encoding = build_encoding(spec, subject.size())
    ends = [end for end in (encoding.max_length, encoding.num_positions) if end is not None]
    if not ends:
        return encoding, FAR
    try:
        return build_encoding(spec, subject.size(length=FAR + STRETCH)), FAR
    except InputError:
        # An option limits the positions: try the last ones.
        return encoding, min(ends) - STRETCH


def _results(
    encoding: Encoding, start: int, causal: bool, x: Tensor, q: Tensor, k: Tensor
) -> dict[str, Tensor]:
    """The results of the hooks in use for the tokens from `start` on."""
    x, q, k = x.clone(), q.clone(), k.clone()  # a hook may change its input in place
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(1, HEADS, STRETCH, STRETCH, generator=generator, device="cpu").to(x.device)
    pos = encoding.positions(torch.arange(start, start + STRETCH), 1)
    context = AttentionContext(pos, pos, 0, causal, features=encoding.read(x))
    made: dict[str, Tensor | None] = {}
    made["rotate q"], made["rotate k"] = encoding.rotate(q, k, context)
    made["embed"] = encoding.embed(x, pos)
    if encoding.uses("bias"):
        from_afar = AttentionContext(pos, torch.arange(STRETCH), STRETCH, causal)
        made["bias"] = encoding.bias_table(context, HEADS)
        made["bias from afar"] = encoding.bias_table(from_afar, HEADS)
    made["score"] = encoding.score(q, k, context)
    if encoding.uses("values"):
        made["values"] = encoding.values(k, context)
    if encoding.uses("output"):
        made["output"] = encoding.output(q, context)
    made["logits"] = encoding.logits(raw, q, k, context)
    weights = encoding.weights(raw.masked_fill(~context.allowed(), -torch.inf), context)
    made["value"] = encoding.value(weights.to(x.dtype), context)
    # Nothing is left of queries and keys where `score` is the whole product.
    return {hook: result for hook, result in made.items() if result is not None and result.numel()}


def _rounded_once(
    hook: str, actual: Tensor, exact: Tensor, rotated: Tensor | None, context: AttentionContext
) -> Outcome:
    if hook in ("bias", "score", "logits"):  # in "bias from afar" nothing is masked
        # Masked entries may have any value.
        seen = context.allowed()
        actual, exact = (t.expand(*t.shape[:-2], *seen.shape)[..., seen] for t in (actual, exact))
    if rotated is not None:
        # The length of a rotated vector bounds the rounding of each component.
        length = torch.maximum(rotated.float().norm(dim=-1, keepdim=True), exact.norm(dim=-1, keepdim=True))
        bound, unit = 2**-8 * length, "2^-8 of a vector's length"
    elif hook.startswith("bias"):
        bound, unit = 2**-8 * (1 + exact.abs()), "2^-8 of 1 + the value"
    elif hook == "embed":
        bound, unit = 2**-7 * (1 + exact.abs()), "2^-7 of 1 + the value"
    else:
        largest = exact[exact.isfinite()].abs().max().clamp(min=1e-3)
        bound, unit = 2**-5 * largest, "2^-5 of the largest"
    off = (actual - exact).abs().masked_fill(actual == exact, 0.0).nan_to_num(nan=torch.inf)
    worst = float((off / bound).max())
    hint = "" if worst <= 1 else "; compute positions and angles in float32 and round once, at the end"
    return Outcome(worst <= 1, f"{hook}: {worst:.0%} of the bound, {unit}{hint}", worst)


@law(
    "a model built on the meta device loads all values",
    "Given memory and another model's state dict, a model built on the meta device computes the same as the "
    "other, or raises.",
    needs=(REPEATS,),
)
def built_on_meta(subject: Subject) -> Iterator[Outcome]:
    row, other = subject.tokens(2, 7), subject.model(seed=1)
    try:
        with torch.device("meta"):
            model = subject.model(large_weights=False)
        # As `to_empty`, whose values are undefined.
        model._apply(lambda tensor: torch.ones_like(tensor, device="cpu"))
        model.load_state_dict(other.state_dict())
        output = model(row)
    except (RuntimeError, NotImplementedError) as error:
        yield passed(f"it raises {type(error).__name__}")
        return
    yield within(farthest(output, other(row)), 0.0)


@law(
    "its state dict is complete",
    "Two models with different initial weights are bitwise equal once one has loaded the other's state dict.",
    needs=(REPEATS,),
)
def state_dict_is_complete(subject: Subject) -> Iterator[Outcome]:
    row = subject.tokens(2, 7)
    one, other = subject.model(seed=1), subject.model(seed=2)
    yield beyond(farthest(one(row), other(row)), 0.0, "two seeds differ by")
    other.load_state_dict(one.state_dict())
    yield within(farthest(one(row), other(row)), 0.0, "with the same state they differ by")
    for part in one.encoding.modules():
        for name, value in vars(part).items():
            # A tensor with a gradient, such as an auxiliary loss, is computed anew in every pass.
            if isinstance(part, Encoding) and isinstance(value, Tensor) and value.is_leaf:
                yield failed(
                    f"{type(part).__name__}.{name} is a tensor but neither parameter nor buffer: "
                    f"state_dict() misses it"
                )
    yield passed(f"{len(one.encoding.state_dict())} tensors of its own")
