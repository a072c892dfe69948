"""Hooks: their names, shapes and precision, and that they change the output."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from zoo.contract.hook_outputs import HOOKS, defined_at, watched
from zoo.contract.law import (
    CHANGES,
    PADDED,
    REACHES,
    SHAPES,
    SPELLED,
    Outcome,
    beyond,
    failed,
    farthest,
    law,
    only,
    passed,
    within,
)  # fmt: skip
from zoo.contract.subject import HEADS, VOCABULARY, WIDTH, Subject, keep_of
from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import build_encoding
from zoo.models.cache import Cache
from zoo.registry import class_location

LONGEST = 65
"""The longest trained length, in tokens, beyond which the output is tested too."""


@law(
    SPELLED,
    "Every public name of the class is a hook or an attribute of `Encoding`, or its own code reads it.",
    needs=(),
)
def spelled_right(subject: Subject) -> Iterator[Outcome]:
    known = [name for name in (*vars(Encoding), *Encoding.__annotations__) if name[0] != "_"]
    encodings = {type(part): part for part in subject.stack.modules() if isinstance(part, Encoding)}
    for cls, encoding in encodings.items():
        unread = sorted(_unread(encoding) - {*known, "name"})
        if not unread:
            continue
        near = {
            name: found[0] for name in unread if (found := difflib.get_close_matches(name, known, 1, 0.8))
        }
        hints = [f"the {'hook' if one in HOOKS else 'attribute'} {one!r}" for one in near.values()]
        hint = f"did you mean {' and '.join(hints)}?" if hints else f"the hooks are {', '.join(HOOKS)}"
        named = ", ".join(map(repr, unread))
        where = _line_of(cls, next(iter(near), unread[0]))
        yield failed(f"nothing reads {named}; {hint} (a name of your own begins with _)", where)
    yield passed()


def _unread(encoding: Encoding) -> set[str]:
    """Public names of a class and of the values on its instance that its code mentions only once."""
    own = type(encoding).__mro__[: type(encoding).__mro__.index(Encoding)]
    text = "\n".join(Path(file).read_text() for file in {*map(inspect.getsourcefile, own)} if file)
    code = re.sub(r'""".*?"""|#.*?$', "", text, flags=re.DOTALL | re.MULTILINE)
    names = {*vars(encoding), *(name for one in own for name in vars(one))} - {*vars(Encoding(encoding.size))}
    return {name for name in names if name[0] != "_" and len(re.findall(rf"\b{name}\b", code)) == 1}


def _line_of(cls: type[Encoding], name: str = "") -> str:
    """File and line of a class, or of a function in it."""
    file, line = class_location(cls)
    code = getattr(vars(cls).get(name), "__code__", None)
    return f"{file}:{code.co_firstlineno if code else line}"


@law(
    SHAPES,
    "Every hook returns the shape and type that base.py documents; logits have their shape, are finite "
    "and float32.",
    needs=(),
)
def shapes(subject: Subject) -> Iterator[Outcome]:
    row, model = subject.tokens(3, 9), subject.model()
    with watched(model):
        logits = model(row)
    if logits.shape != (*row.shape, VOCABULARY) or logits.dtype != torch.float32:
        yield failed(f"logits {list(logits.shape)} {logits.dtype}")
    if not logits.isfinite().all():
        yield failed("logits are not finite")
    pointer = subject.model(head="pointer")(row)
    if pointer.shape != row.shape:
        yield failed(f"a pointer's logits are {list(pointer.shape)}")
    yield passed()


@law(
    REACHES,
    "Longer sequences than in training have finite outputs, up to `max_length` where there is such a limit.",
)
def reaches(subject: Subject) -> Iterator[Outcome]:
    model = subject.model()
    limit = model.encoding.max_length or subject.longest
    for length in sorted({min(limit, length) for length in (subject.length, subject.longest)}):
        hint = f"{length} tokens, trained at {subject.length}: override `max_length` or clamp the positions"
        with _hinted(hint):
            finite = model(subject.tokens(1, length)).isfinite().all()
        yield passed(f"{length} tokens") if finite else failed(f"not finite at {length} tokens")


@law(
    PADDED,
    "The same holds with positions for each sequence, [B,T], and while decoding, with more keys than "
    "queries.",
    needs=(SHAPES, REACHES),
)
def shapes_with_padding(subject: Subject) -> Iterator[Outcome]:
    model, row = subject.model(), subject.tokens(3, 9)
    hint = "with padding, positions are [B,T]: give them an axis for the heads, pos[:, None]"
    with _hinted(hint), watched(model):
        model(row, keep_of((0, 2, 4), row.shape[1]))
    limit = model.encoding.max_cached_length
    if subject.kind == "decoder" and (limit is None or limit >= row.shape[1]):
        cache = Cache(model.num_layers)
        hint = "while decoding there are more keys than queries: q is at context.q_pos, k at context.k_pos"
        with _hinted(hint), watched(model):
            for part in row.split(6, 1):
                model(part, cache=cache)
    yield passed()


@contextmanager
def _hinted(hint: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.args = (f"{str(error).partition(chr(10))[0]}; {hint}",)
        raise


@law(
    "weights are shares of one",
    "No attention weight is negative, hidden keys have none, and a row sums to at most one. Gradients are "
    "finite, also where all keys are hidden.",
    only("it keeps the softmax", lambda subject: any(e.uses("weights") for e in subject.encodings)),
)
def weights_are_shares(subject: Subject) -> Iterator[Outcome]:
    pos, keep = torch.arange(9), keep_of((0, 4, 9), 9)
    for encoding in (one for one in subject.encodings if one.uses("weights")):
        where = defined_at(encoding, "weights")
        features = encoding.read(torch.randn(3, 9, WIDTH))
        context = AttentionContext(pos, pos, 0, subject.kind == "decoder", keep=keep, features=features)
        for scale in (1.0, 100.0):
            raw = (scale * torch.randn(3, HEADS, 9, 9)).requires_grad_()
            weights = encoding.weights(raw.masked_fill(~context.allowed(), -torch.inf), context)
            if (weights < 0).any() or weights.masked_select(~context.allowed()).any():
                yield failed("a weight is negative, or that of a hidden key is not 0", where)
            excess = float((weights.detach().sum(-1) - 1).max())
            yield within(max(excess, 0.0), 1e-5, "the sum of a row is above one by")
            learned = [*encoding.parameters()]
            noise = torch.randn(weights.shape)
            gradients = torch.autograd.grad((weights * noise).sum(), [raw, *learned], materialize_grads=True)
            if not all(gradient.isfinite().all() for gradient in gradients):
                yield failed("a gradient of the weights is not finite", where)


def _does_something(encoding: Encoding) -> bool:
    """False where an encoding declares that it does nothing: it reads no positions and overrides no hook."""
    return encoding.reads_positions or any(map(encoding.uses, HOOKS))


@law(
    CHANGES,
    "In training or evaluation, within or beyond the trained length, outputs differ from those of the "
    "same model without it; in a list, from those without each encoding.",
    lambda subject: (
        None if any(map(_does_something, subject.encodings)) else "it declares that it does nothing"
    ),
    needs=(SHAPES, REACHES),
)
def changes_the_output(subject: Subject) -> Iterator[Outcome]:
    for index, encoding in enumerate(subject.encodings):
        if not _does_something(encoding):
            continue
        model, without = subject.model(), subject.model()
        without.encoding.slots[index] = nn.ModuleList([build_encoding("none", encoding.size)])
        moved = 0.0
        for training, length in ((False, 13), (True, 13), (False, 2 * min(subject.length, LONGEST))):
            model.train(training)
            row = subject.tokens(2, length)
            moved = max(moved, farthest(model(row), without.train(training)(row)))
        finding = beyond(moved, 1e-4, "moved by")
        if finding.passed:
            yield finding
            continue
        used = ", ".join(filter(encoding.uses, HOOKS))
        none = f"it overrides no hook ({', '.join(HOOKS)}), and reads_positions is not False, as in `none`"
        yield failed(f"{used} changes nothing: {finding.numbers}" if used else none, _line_of(type(encoding)))
