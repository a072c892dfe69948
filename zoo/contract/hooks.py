"""Hooks: their names, shapes and precision, and that they change the output."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch import nn

from zoo import registry
from zoo.contract.hook_outputs import HOOKS, code_of, defined_at, watched
from zoo.contract.law import (
    CHANGES,
    PADDED,
    SHAPES,
    Fault,
    Finding,
    all_of,
    beyond,
    broken,
    farthest,
    first_line,
    held,
    law,
)
from zoo.contract.small_model import VOCABULARY, Subject, keep_of, names_in
from zoo.description import class_location
from zoo.encodings.base import Encoding
from zoo.encodings.stack import build_encoding
from zoo.models.cache import Cache

SPELLED = "hook names are spelled correctly"
LONGEST = 64
"""The longest trained length, in tokens, beyond which the output is tested too."""


@law(
    SPELLED,
    "No unused public name of the class is close to the name of a hook or an attribute of `Encoding`.",
    needs=(),
)
def spelled_right(subject: Subject) -> Finding:
    return all_of(
        [_spelling(registry.encodings.load(name)) for name in dict.fromkeys(names_in(subject.spec))]
    )


def _spelling(cls: type[Encoding]) -> Finding:
    known = sorted({name for name in (*vars(Encoding), *Encoding.__annotations__) if name[0] != "_"})
    faults, where = [], ""
    for name, value in _unused(cls).items():
        near = difflib.get_close_matches(name, known, 1, 0.8)
        # A class that has the hook too did not misspell it.
        if near and not any(near[0] in vars(one) for one in _own_classes(cls)):
            kind = "hook" if near[0] in HOOKS else "attribute"
            faults.append(
                f"{name!r} is not used by the model; did you mean the {kind} {near[0]!r}? (a name of "
                f"your own begins with _)"
            )
            where = where or defined_at(value) or _class_line(cls)
    return Finding(False, "; ".join(faults), float("inf"), where=where) if faults else held()


def _own_classes(cls: type[Encoding]) -> list[type]:
    """The class and its ancestors, without those of the zoo and of torch."""
    others = [one for one in cls.__mro__[1:-1] if not one.__module__.startswith(("zoo.", "torch."))]
    return [cls, *others]


def _unused(cls: type[Encoding]) -> dict[str, Any]:
    """The public names of a class that `Encoding` does not have and none of its own code uses."""
    own = {name: value for one in reversed(_own_classes(cls)) for name, value in vars(one).items()}
    used = {name for value in own.values() for name in _names_in(code_of(value))}
    return {
        name: value
        for name, value in own.items()
        if name[0] != "_" and name != "name" and not hasattr(Encoding, name) and name not in used
    }


def _names_in(code: CodeType | None) -> Iterator[str]:
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _names_in(constant)


@law(
    SHAPES,
    "Every hook returns the shape and type that base.py documents; logits have their shape, are finite "
    "and float32.",
    needs=(),
)
def shapes(subject: Subject) -> Finding:
    row = subject.tokens(3, subject.at_most(9))
    model = subject.model()
    with watched(model):
        logits = model(row)
    if logits.shape != (*row.shape, VOCABULARY) or logits.dtype != torch.float32:
        return broken(f"logits {list(logits.shape)} {logits.dtype}")
    if not logits.isfinite().all():
        return broken("logits are not finite")
    pointer = subject.model(head="pointer")(row)
    if pointer.shape != row.shape:
        return broken(f"a pointer's logits are {list(pointer.shape)}")
    return held()


@law(
    PADDED,
    "The same holds with positions for each sequence, [B,T], and while decoding, with more keys than "
    "queries.",
)
def shapes_with_padding(subject: Subject) -> Finding:
    model, row = subject.model(), subject.tokens(3, subject.at_most(9))
    keep = keep_of((0, 2, 4), row.shape[1])
    hint = "with padding, positions are [B,T]: give them an axis for the heads, pos[:, None]"
    with _hinted(hint, subject), watched(model):
        model(row, keep)
    limit = model.encoding.max_cached_length
    if subject.kind == "decoder" and (limit is None or limit >= row.shape[1]):
        cache = Cache(model.num_layers)
        hint = "while decoding there are more keys than queries: q is at span.q_pos, k at span.k_pos"
        with _hinted(hint, subject), watched(model):
            for part in row.split(6, 1):
                model(part, cache=cache)
    return held()


@contextmanager
def _hinted(hint: str, subject: Subject) -> Iterator[None]:
    try:
        yield
    except Fault as error:
        raise Fault(f"{error}; {hint}", error.where) from error
    except Exception as error:
        raise Fault(f"{first_line(error)}; {hint}", subject.line_of(error)) from error


@law(
    CHANGES,
    "In training or evaluation, within or beyond the trained length, outputs differ from those of the "
    "same model without it; in a list, from those without each encoding.",
    lambda subject: "it declares that it does nothing" if all(map(_is_none, subject.encodings)) else None,
    needs=(SHAPES, SPELLED),
)
def changes_the_output(subject: Subject) -> Finding:
    findings = []
    for index, encoding in enumerate(subject.encodings):
        if _is_none(encoding):
            continue
        model, without = subject.model(), subject.model()
        without.encoding.slots[index] = nn.ModuleList([build_encoding("none", encoding.size)])
        moved = 0.0
        for training, length in ((False, 12), (True, 12), (False, 2 * min(subject.length, LONGEST))):
            model.train(training)
            limit = model.encoding.max_length
            row = subject.tokens(2, length if limit is None else min(length, limit))
            moved = max(moved, farthest(model(row), without.train(training)(row)))
        finding = beyond(moved, 1e-4, "moved by")
        findings.append(finding if finding.held else _without_effect(encoding, finding))
    return all_of(findings)


def _is_none(encoding: Encoding) -> bool:
    """Whether an encoding declares that it does nothing: it reads no positions and overrides no hook."""
    return not encoding.reads_positions and not any(map(encoding.uses, HOOKS))


def _without_effect(encoding: Encoding, finding: Finding) -> Finding:
    cls = type(encoding)
    if any(map(encoding.uses, HOOKS)):
        used = ", ".join(filter(encoding.uses, HOOKS))
        message = f"{used} changes nothing: {finding.numbers}"
    else:
        message = f"it overrides no hook ({', '.join(HOOKS)}), and reads_positions is not False, as in `none`"
        idle = [name for name, value in _unused(cls).items() if code_of(value)]
        message += f"; nothing calls {', '.join(idle)}" if idle else ""
    return Finding(False, message, finding.share, where=_class_line(cls))


def _class_line(cls: type[Encoding]) -> str:
    file, line = class_location(cls)
    return f"{file}:{line}"
