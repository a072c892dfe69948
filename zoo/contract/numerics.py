"""Devices, precision and state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.contract.hook_outputs import watched
from zoo.contract.law import PADDED, REPEATS, Finding, all_of, broken, farthest, held, law, within
from zoo.contract.small_model import HEADS, WIDTH, Subject, keep_of
from zoo.encodings.base import Encoding, Span
from zoo.encodings.stack import build_encoding
from zoo.errors import InputError
from zoo.models.cache import Cache

PRECISION = "precision"
MIXED = 0.1, 0.2
"""How far a bf16 pass of the small models with large weights may be from float32: relative, and absolute."""


@law(
    PRECISION,
    "Under autocast and as a bf16 model, hooks return the precision of their inputs, and logits are close "
    "to those of float32.",
)
def precision(subject: Subject) -> Finding:
    row = subject.tokens(3, subject.at_most(9))
    model = subject.model()
    logits = model(row)
    with torch.autocast("cpu", torch.bfloat16), watched(model):
        mixed = model(row)
    low, exact = subject.model().bfloat16(), subject.model()
    exact.load_state_dict({name: value.float() for name, value in low.state_dict().items()})
    with watched(low):
        reduced = low(row)
    return all_of([_near("autocast", mixed, logits), _near("a bf16 model", reduced, exact(row))])


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
    "tensors stay on the model's device",
    "Every tensor that it creates is on the model's device; on a GPU none is left on the CPU.",
    needs=(PADDED,),
)
def device(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(2, 9)
    keep = keep_of((0, 4), 9)
    # A tensor created without a device lands on another one than the model's.
    with torch.device("meta"):
        model(row, keep)
        if subject.kind == "decoder" and model.encoding.max_cached_length is None:
            cache = Cache(model.num_layers)
            model(row[:, :6], cache=cache)
            model(row[:, 6:], cache=cache)
    return held()


FAR, STRETCH = 100_000, 16


@law(
    "positions are exact in bf16 at 100,000",
    "Embedded and rotated vectors are off by at most 2^-8 of their length, products by at most 2^-5 of "
    "the largest.",
    needs=(PRECISION,),
)
def far_in_bf16(subject: Subject) -> Finding:
    """bf16 counts exactly to 256 only, so positions and angles must be float32, rounded once at the end."""
    findings = []
    for spec in subject.spec if isinstance(subject.spec, list) else [subject.spec]:
        low, start = _reaching(spec, subject)
        exact = build_encoding(spec, low.size).eval()
        low = low.bfloat16().eval()
        exact.load_state_dict({name: value.float() for name, value in low.state_dict().items()})
        with torch.no_grad():
            findings += _far(subject, low, exact, start)
    return all_of(findings) if findings else held("it does not depend on positions")


def _reaching(spec: Any, subject: Subject) -> tuple[Encoding, int]:
    """The encoding, built large enough for the positions to try; and the first of those."""
    encoding = build_encoding(spec, subject.size())
    if encoding.max_length is None and encoding.num_positions is None:
        return encoding, FAR
    try:
        return build_encoding(spec, subject.size(length=FAR + STRETCH)), FAR
    except InputError:
        # An option limits the positions: try the last ones.
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
            made["bias from afar"] = encoding.bias_table(Span(pos, near, STRETCH, causal), HEADS)
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


def _rounded_once(hook: str, actual: Tensor, exact: Tensor, rotated: Tensor | None, span: Span) -> Finding:
    if actual.shape != exact.shape:
        return broken(f"{hook}: {list(actual.shape)} in bf16, {list(exact.shape)} in float32")
    if hook in ("bias", "score", "logits"):  # in "bias from afar" nothing is masked
        # Masked entries may have any value.
        seen = span.allowed()
        actual, exact = (t.expand(*t.shape[:-2], *seen.shape)[..., seen] for t in (actual, exact))
    off = (actual - exact).abs().masked_fill(actual == exact, 0.0).nan_to_num(nan=torch.inf)
    if rotated is not None:
        # The length of a rotated vector bounds the rounding of each component.
        length = torch.maximum(rotated.float().norm(dim=-1, keepdim=True), exact.norm(dim=-1, keepdim=True))
        share, bound = off / (2**-8 * length), "2^-8 of a vector's length"
    elif hook.startswith("bias"):
        share, bound = off / (2**-8 * (1 + exact.abs())), "2^-8 of 1 + the value"
    elif hook == "embed":
        share, bound = off / (2**-7 * (1 + exact.abs())), "2^-7 of 1 + the value"
    else:
        largest = exact[exact.isfinite()].abs().max().clamp(min=1e-3)
        share, bound = off / (2**-5 * largest), "2^-5 of the largest"
    worst = float(share.max())
    hint = "" if worst <= 1 else "; compute positions and angles in float32 and round once, at the end"
    return Finding(worst <= 1, f"{hook}: {worst:.0%} of the bound, {bound}{hint}", worst)


@law(
    "its state dict is complete",
    "Two models with different initial weights are bitwise equal once one has loaded the other's state dict.",
    needs=(REPEATS,),
)
def state_dict_is_complete(subject: Subject) -> Finding:
    row = subject.tokens(2, 8)
    one, other = subject.model(seed=1), subject.model(seed=2)
    if torch.equal(one(row), other(row)):
        return broken("two seeds give the same model: nothing was tested")
    other.load_state_dict(one.state_dict())
    if not torch.equal(one(row), other(row)):
        difference = (one(row) - other(row)).abs().max().item()
        return broken(f"with the same state they differ by {difference:.2g}")
    loose = [
        f"{type(part).__name__}.{name}"
        for part in one.encoding.modules()
        if isinstance(part, Encoding)
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    ]
    if loose:
        return broken(
            f"{', '.join(loose)} is a tensor but neither parameter nor buffer: state_dict() misses it"
        )
    return held(f"{len(one.encoding.state_dict())} tensors of its own")
