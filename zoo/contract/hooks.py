"""What each hook gives: the right names, shapes and precision, and a change."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from zoo import registry
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
from zoo.contract.subject import VOCABULARY, Subject, keep_of, line_of, names_in
from zoo.description import class_location
from zoo.encodings.base import Encoding, Span
from zoo.encodings.stack import build_encoding
from zoo.models.cache import Cache
from zoo.models.transformer import Transformer

SPELLED = "its hooks are spelled right"
LONGEST = 64
"""Of a trained length beyond which it is still tried, in tokens."""


@law(
    SPELLED,
    "No public name of the class is nearly that of a hook or a fact, and used by nothing.",
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
        # One that has the hook too is no misspelling of it.
        if near and not any(near[0] in vars(one) for one in _own_classes(cls)):
            kind = "hook" if near[0] in HOOKS else "attribute"
            faults.append(
                f"{name!r} is nothing that a model uses; did you mean the {kind} {near[0]!r}? (a name of "
                f"your own begins with _)"
            )
            where = where or _defined(value) or _class_line(cls)
    return Finding(False, "; ".join(faults), float("inf"), where=where) if faults else held()


def _own_classes(cls: type[Encoding]) -> list[type]:
    """The class and its ancestors, the zoo's own left out."""
    others = [one for one in cls.__mro__[1:-1] if not one.__module__.startswith(("zoo.", "torch."))]
    return [cls, *others]


def _unused(cls: type[Encoding]) -> dict[str, Any]:
    """The public names of a class that the base has not, and that none of its code asks for."""
    own = {name: value for one in reversed(_own_classes(cls)) for name, value in vars(one).items()}
    asked = {name for value in own.values() for name in _names_in(_code(value))}
    return {
        name: value
        for name, value in own.items()
        if name[0] != "_" and name != "name" and not hasattr(Encoding, name) and name not in asked
    }


def _function(value: Any) -> Any:
    return inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))


def _code(value: Any) -> CodeType | None:
    function = _function(value)
    return function.__code__ if isinstance(function, FunctionType) else None


def _names_in(code: CodeType | None) -> Iterator[str]:
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _names_in(constant)


def _defined(value: Any) -> str:
    """File and line of a function; "" for what is none."""
    code = _code(value)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


@law(
    SHAPES,
    "Every hook gives what base.py says, in shape and kind; logits have their shape, are finite and float32.",
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
        return broken("logits that are not finite")
    pointer = subject.model(head="pointer")(row)
    if pointer.shape != row.shape:
        return broken(f"a pointer's logits are {list(pointer.shape)}")
    return held()


@law(
    PADDED,
    "So it is where sequences have places of their own, [B,T], and while decoding, with more keys than "
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
        hint = "while decoding there are more keys than queries: q stands at span.q_pos, k at span.k_pos"
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
    "In training or at evaluation, within or beyond the trained length, outputs are others than those of the "
    "same model without it; in a list that is so of each.",
    lambda subject: "it says that it is none" if all(map(_is_none, subject.encodings)) else None,
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
    """Whether an encoding says that it does nothing: no place is read, and no hook used."""
    return not encoding.reads_positions and not any(map(encoding.uses, HOOKS))


def _without_effect(encoding: Encoding, finding: Finding) -> Finding:
    cls = type(encoding)
    if any(map(encoding.uses, HOOKS)):
        used = ", ".join(filter(encoding.uses, HOOKS))
        told = f"nothing comes of {used}: {finding.numbers}"
    else:
        told = f"it overrides no hook ({', '.join(HOOKS)}), and reads_positions is not False, as of `none`"
        idle = [name for name, value in _unused(cls).items() if _code(value)]
        told += f"; nothing calls {', '.join(idle)}" if idle else ""
    return Finding(False, told, finding.share, where=_class_line(cls))


def _class_line(cls: type[Encoding]) -> str:
    file, line = class_location(cls)
    return f"{file}:{line}"


# Watching the hooks of a model.

Seen = tuple[Encoding, str, Any]
"""An encoding, a hook, and what it gave."""


def leak(model: Transformer, row: Tensor, changed: Tensor, at: int) -> tuple[str, str]:
    """The first hook that gives other values before place `at` where tokens differ from there on only.

    Returns: a sentence, and file and line; both "" where there is none.
    """
    seen: list[Seen] = []
    with watched(model, seen):
        model(row)
    before, seen = seen, []
    with watched(model, seen):
        model(changed)
    for (encoding, hook, one), (_, _, other) in zip(before, seen, strict=True):
        for a, b in zip(_up_to(hook, one, at), _up_to(hook, other, at), strict=True):
            if farthest(a, b) > 1e-5:
                where = _defined(getattr(type(encoding), hook))
                return f"{hook} of {encoding.name!r} knows a token that comes later", where
    return "", ""


def _up_to(hook: str, result: Any, at: int) -> list[Tensor]:
    """Of what a hook gave, that which belongs to the tokens before a place."""
    results = result if isinstance(result, tuple | list) else [result]
    places = {"rotate": (Ellipsis, slice(at), slice(None)), "value": (Ellipsis, slice(at), slice(None))}
    places |= {hook: (Ellipsis, slice(at), slice(at)) for hook in ("score", "logits")}
    where = places.get(hook, (slice(None), slice(at)))
    return [one[where] for one in results if isinstance(one, Tensor)] if hook in TOKENS else []


@contextmanager
def watched(model: Transformer, seen: list[Seen] | None = None) -> Iterator[None]:
    """Raises Fault where a hook of an encoding gives what the model cannot use, and names the hook.

    Into `seen` goes what hooks give, in the order of their ends.
    """
    seen = [] if seen is None else seen
    encodings = [part for part in model.encoding.modules() if isinstance(part, Encoding)]
    try:
        for encoding in encodings:
            for hook in HOOKS:
                encoding.__dict__[hook] = _watching(encoding, hook, seen)
        yield
    finally:
        for encoding in encodings:
            for hook in HOOKS:
                encoding.__dict__.pop(hook, None)


def _watching(encoding: Encoding, hook: str, seen: list[Seen]) -> Callable[..., Any]:
    call, rule = getattr(encoding, hook), RULES[hook]

    def watching(*args: Any, **kwargs: Any) -> Any:
        try:
            given = inspect.signature(call).bind(*args, **kwargs)
            result = call(*args, **kwargs)
        except Fault:
            raise  # of an encoding inside this one
        except (Exception, SystemExit) as error:
            at = line_of(error, [registry.encodings.describe(encoding.name)]) or _defined(
                getattr(type(encoding), hook)
            )
            raise Fault(f"{hook} of {encoding.name!r} raised {first_line(error)}", at) from error
        fault = rule(encoding, result, *given.arguments.values())
        if fault is not None:
            raise Fault(f"{hook} of {encoding.name!r} gave {fault}", _defined(getattr(type(encoding), hook)))
        seen.append((encoding, hook, result))
        return result

    return watching


def _tensor(result: Any) -> str | None:
    return None if isinstance(result, Tensor) else f"{type(result).__name__}, not a tensor"


def _shaped(result: Any, *shapes: tuple[int, ...], letters: str, exactly: bool = True) -> str | None:
    """What is wrong with a result that should have one of these shapes, or broadcast to one."""
    if not isinstance(result, Tensor):
        return _tensor(result)
    actual = tuple(result.shape)
    right = actual in shapes if exactly else any(_broadcasts(actual, shape) for shape in shapes)
    expected = " or ".join(str(list(shape)) for shape in shapes)
    how = "is needed" if exactly else "is needed, or what broadcasts to it"
    return None if right else f"{list(actual)} where {expected} {how} {letters}"


def _broadcasts(actual: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    short = shape[len(shape) - len(actual) :]
    return len(actual) <= len(shape) and all(a in (1, b) for a, b in zip(actual, short, strict=True))


def _positions(encoding: Encoding, result: Any, ids: Tensor, batch: int) -> str | None:
    length = ids.shape[-1]
    if isinstance(result, Tensor) and result.dtype in (torch.bfloat16, torch.float16):
        return f"{_short(result)}, which is exact to 256 only: keep positions int64 or float32"
    return _shaped(result, (length,), (batch, length), letters="(tokens, or batch and tokens)")


def _embed(encoding: Encoding, result: Any, x: Tensor, pos: Tensor) -> str | None:
    fault = _shaped(result, tuple(x.shape), letters="(batch, tokens, width)")
    return fault or _same_type("vectors", result, x, "x")


def _read(encoding: Encoding, result: Any, x: Tensor) -> str | None:
    if result is None or (isinstance(result, Tensor) and result.shape[:2] == x.shape[:2]):
        return None
    return (
        _tensor(result) or f"{list(result.shape)} where {list(x.shape[:2])} must come first (batch, tokens)"
    )


def _rotate(encoding: Encoding, result: Any, q: Tensor, k: Tensor, span: Span) -> str | None:
    if not (isinstance(result, tuple | list) and len(result) == 2):
        return f"{type(result).__name__}, not queries and keys"
    for what, after, before in (("queries", result[0], q), ("keys", result[1], k)):
        fault = _tensor(after)
        if fault is None and (after.dim() != 4 or after.shape[:3] != before.shape[:3]):
            fault = f"{list(after.shape)} where {list(before.shape)} is needed (batch, heads, tokens, width)"
        if fault is not None:
            return f"{what}: {fault}"
    if result[0].shape[-1] != result[1].shape[-1]:
        return f"queries {result[0].shape[-1]} wide and keys {result[1].shape[-1]} wide"
    return _same_type("queries", result[0], q, "q") or _same_type("keys", result[1], k, "k")


def _bias(encoding: Encoding, result: Any, head: Tensor, q: Tensor, k: Tensor) -> str | None:
    shape = tuple(torch.broadcast_shapes(head.shape, q.shape, k.shape))
    return _shaped(result, shape, letters="(head, query and key, broadcast)", exactly=False)


def _bias_table(encoding: Encoding, result: Any, span: Span, num_heads: int) -> str | None:
    pairs = num_heads, span.num_queries, span.num_keys
    batches = [one.shape[0] for one in (span.q_pos, span.keep) if one is not None and one.dim() == 2]
    shapes = [pairs, *((batch, *pairs) for batch in batches[:1])]
    return _shaped(result, *shapes, letters="(heads, queries, keys)", exactly=False)


def _score(encoding: Encoding, result: Any, q: Tensor, k: Tensor, span: Span) -> str | None:
    if result is None:
        return None
    shape = (*q.shape[:3], k.shape[2])
    return _shaped(result, shape, letters="(batch, heads, queries, keys)", exactly=False)


def _logits(encoding: Encoding, result: Any, logits: Tensor, *_: Any) -> str | None:
    return _shaped(result, tuple(logits.shape), letters="(batch, heads, queries, keys)")


def _value(encoding: Encoding, result: Any, weights: Tensor, span: Span) -> str | None:
    if result is None:
        return None
    shape = (*weights.shape[:3], encoding.size.head_dim)
    return _shaped(result, shape, letters="(batch, heads, queries, width)", exactly=False)


def _same_type(what: str, after: Tensor, before: Tensor, name: str) -> str | None:
    if after.dtype == before.dtype:
        return None
    return f"{what} of {_short(after)} for {_short(before)}: cast them back with .to({name}.dtype)"


def _short(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


RULES: dict[str, Callable[..., str | None]] = {
    "positions": _positions, "embed": _embed, "read": _read, "rotate": _rotate, "bias": _bias,
    "bias_table": _bias_table, "score": _score, "logits": _logits, "value": _value,
}  # fmt: skip
HOOKS = tuple(RULES)
"""In the order of a forward pass."""
TOKENS = ("embed", "read", "rotate", "score", "logits", "value")
"""The hooks that see more of tokens than their places."""
