"""Checks what the hooks of a model return while it runs: shapes and precision."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from zoo import registry
from zoo.contract.law import Fault, farthest, first_line
from zoo.contract.small_model import line_of
from zoo.encodings.base import Encoding, Span
from zoo.models.transformer import Transformer

Seen = tuple[Encoding, str, Any]
"""An encoding, a hook, and its result."""


def leak(model: Transformer, row: Tensor, changed: Tensor, at: int) -> tuple[str, str]:
    """The first hook whose result before position `at` depends on tokens from `at` on.

    Returns: a sentence, and file and line; both "" if there is none.
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
                where = defined_at(getattr(type(encoding), hook))
                return f"{hook} of {encoding.name!r} depends on a later token", where
    return "", ""


def _up_to(hook: str, result: Any, at: int) -> list[Tensor]:
    """The part of a hook's result that belongs to the tokens before a position."""
    results = result if isinstance(result, tuple | list) else [result]
    slices = {"rotate": (Ellipsis, slice(at), slice(None)), "value": (Ellipsis, slice(at), slice(None))}
    slices |= {hook: (Ellipsis, slice(at), slice(at)) for hook in ("score", "logits")}
    where = slices.get(hook, (slice(None), slice(at)))
    return [one[where] for one in results if isinstance(one, Tensor)] if hook in TOKENS else []


@contextmanager
def watched(model: Transformer, seen: list[Seen] | None = None) -> Iterator[None]:
    """Raises Fault, with the name of the hook, if a hook returns what the model cannot use.

    Results of hooks are appended to `seen`, in the order in which they return.
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
            raise  # from an encoding that this one wraps
        except (Exception, SystemExit) as error:
            at = line_of(error, [registry.encodings.describe(encoding.name)]) or defined_at(
                getattr(type(encoding), hook)
            )
            raise Fault(f"{hook} of {encoding.name!r} raised {first_line(error)}", at) from error
        fault = rule(encoding, result, *given.arguments.values())
        if fault is not None:
            raise Fault(
                f"{hook} of {encoding.name!r} gave {fault}", defined_at(getattr(type(encoding), hook))
            )
        seen.append((encoding, hook, result))
        return result

    return watching


def _tensor(result: Any) -> str | None:
    return None if isinstance(result, Tensor) else f"{type(result).__name__}, not a tensor"


def _shaped(result: Any, *shapes: tuple[int, ...], letters: str, exactly: bool = True) -> str | None:
    """The fault of a result that should have one of these shapes, or broadcast to one; or None."""
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
"""The hooks that see the content of tokens, not only their positions."""


def defined_at(value: Any) -> str:
    """File and line of a function; "" for anything else."""
    code = code_of(value)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _function(value: Any) -> Any:
    return inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))


def code_of(value: Any) -> CodeType | None:
    function = _function(value)
    return function.__code__ if isinstance(function, FunctionType) else None
