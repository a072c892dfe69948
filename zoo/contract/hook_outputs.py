"""Checks the results of hooks while a model runs: shapes and precision."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from zoo import registry
from zoo.contract.law import Fault, farthest
from zoo.encodings.base import Encoding
from zoo.encodings.likely_cause import explained, line_of
from zoo.models.transformer import Transformer

HOOKS = (
    "positions", "embed", "read", "values", "rotate", "bias", "bias_table", "score", "logits", "weights",
    "value", "output",
)  # fmt: skip
"""In the order of a forward pass."""

Seen = tuple[Encoding, str, Any]
"""An encoding, a hook, and its result."""

Step = Callable[[], object]
ALL = slice(None)

TOKEN_AXES = {
    "positions": (-1,), "embed": (-2,), "read": (1,), "rotate": (-2,), "score": (-2, -1), "logits": (-2, -1),
    "weights": (-2, -1), "value": (-2,), "values": (-2,), "output": (-2,),
}  # fmt: skip
"""The axes of tokens, queries and keys in the result of a hook that knows content."""


def first_difference(
    model: Transformer, one: Sequence[Step], other: Sequence[Step], tokens: slice = ALL
) -> tuple[str, str] | None:
    """The first hook whose results at some of the tokens differ in the last steps of two computations.

    Returns: the hook and its encoding in words, and file and line; None if there is no such hook.
    """
    seen: list[list[Seen]] = []
    for steps in (one, other):
        for step in steps:
            results: list[Seen] = []
            with watched(model, results):
                step()
        seen.append(results)
    for (encoding, hook, result), (_, _, again) in zip(*seen, strict=False):
        pairs = zip(_at(hook, result, tokens), _at(hook, again, tokens), strict=True)
        if any(a.shape == b.shape and farthest(a, b) > 1e-5 for a, b in pairs):
            return f"{hook} of {encoding.name!r}", defined_at(encoding, hook)
    return None


def _at(hook: str, result: Any, tokens: slice) -> list[Tensor]:
    """The entries of a hook's result for some of the tokens."""
    tensors = [one for one in (result if isinstance(result, tuple | list) else [result]) if one is not None]
    if tokens == ALL:
        return tensors
    axes = TOKEN_AXES.get(hook, ())
    where = ([tokens if i in (a % x.dim() for a in axes) else ALL for i in range(x.dim())] for x in tensors)
    return [x[tuple(w)] for x, w in zip(tensors, where, strict=True)] if axes else []


@contextmanager
def watched(model: Transformer, seen: list[Seen] | None = None) -> Iterator[None]:
    """Raises Fault, with the name of the hook, if a hook returns a wrong type or shape.

    Results of hooks are appended to `seen`, in the order in which they return.
    """
    encodings = [part for part in model.encoding.modules() if isinstance(part, Encoding)]
    try:
        for encoding in encodings:
            for hook in HOOKS:
                if callable(getattr(encoding, hook)):  # a parameter may have the name of an unused hook
                    encoding.__dict__[hook] = _watching(encoding, hook, [] if seen is None else seen)
        yield
    finally:
        for encoding in encodings:
            for hook in HOOKS:
                encoding.__dict__.pop(hook, None)


def _watching(encoding: Encoding, hook: str, seen: list[Seen]) -> Callable[..., Any]:
    call = getattr(encoding, hook)
    defined = defined_at(encoding, hook)

    def watching(*args: Any, **kwargs: Any) -> Any:
        try:
            result = call(*args, **kwargs)
        except Fault:
            raise  # from an encoding that this one wraps
        except (Exception, SystemExit) as error:
            at = line_of(error, [registry.encodings.describe(encoding.name)]) or defined
            raise Fault(f"{hook} of {encoding.name!r} raised {explained(error)}", at) from error
        fault = _wrong(encoding, hook, result, [*args, *kwargs.values()])
        if fault:
            raise Fault(f"{hook} of {encoding.name!r} gave {fault}", defined)
        seen.append((encoding, hook, result))
        return result

    return watching


def _wrong(encoding: Encoding, hook: str, result: Any, args: list[Any]) -> str | None:
    """The fault in the result of a hook; None if there is none."""
    if result is None and hook in ("read", "score", "value"):
        return None
    if hook in ("bias_table", "score") and isinstance(result, Tensor) and result.isnan().any():
        return "NaN; a future key, which is masked later, has a negative distance: take its absolute value"
    match hook, args:
        case "positions", [ids, batch, *_]:
            if isinstance(result, Tensor) and result.dtype in (torch.bfloat16, torch.float16):
                return f"{_type(result)}, which is exact to 256 only: keep positions int64 or float32"
            alone = isinstance(result, Tensor) and result.shape == ids.shape[-1:]
            return None if alone else _misfit(result, (batch, ids.shape[-1]), "[tokens] or [batch, tokens]")
        case "embed", [x, _]:
            return _misfit(result, x.shape, "[batch, tokens, width]") or _other_type("vectors", result, x)
        case "read", [x]:
            return _misfit(result, x.shape[:2], "[batch, tokens, ...]", dims=2)
        case "values" | "output", [given, _]:
            fault = _misfit(result, given.shape, "[batch, heads, tokens, width]")
            return fault or _other_type(hook, result, given)
        case "rotate", [q, k, _]:
            if not (isinstance(result, tuple | list) and len(result) == 2):
                return f"{type(result).__name__}, not queries and keys"
            for what, after, before in (("queries", result[0], q), ("keys", result[1], k)):
                if fault := _misfit(after, before.shape[:3], "[batch, heads, tokens, ...]", dims=3):
                    return f"{what}: {fault}"
                if fault := _other_type(what, after, before):
                    return fault
            widths = [one.shape[-1] for one in result]
            return f"queries {widths[0]} wide and keys {widths[1]} wide" if widths[0] != widths[1] else None
        case "bias", [head, q, k]:
            pairs = torch.broadcast_shapes(head.shape, q.shape, k.shape)
            letters = "[heads, queries, keys]; a table of the heads is indexed by `head`"
            return _misfit(result, pairs, letters, broadcasts=True)
        case "bias_table", [context, num_heads]:
            batch = [
                one.shape[0] for one in (context.q_pos, context.keep) if one is not None and one.dim() == 2
            ]
            pairs = (*batch[:1], num_heads, context.num_queries, context.num_keys)
            return _misfit(result, pairs, "[heads, queries, keys]", broadcasts=True)
        case "score", [q, k, _]:
            pairs = (*q.shape[:3], k.shape[2])
            return _misfit(result, pairs, "[batch, heads, queries, keys]", broadcasts=True)
        case "logits" | "weights", [logits, *_]:
            return _misfit(result, logits.shape, "[batch, heads, queries, keys]")
        case "value", [weights, _]:
            outputs = (*weights.shape[:3], encoding.size.head_dim)
            return _misfit(result, outputs, "[batch, heads, queries, width]", broadcasts=True)
    return None


def _misfit(
    result: Any, shape: tuple[int, ...], letters: str, dims: int | None = None, broadcasts: bool = False
) -> str | None:
    """The fault of a result whose first `dims` dimensions, or all, should have a shape or broadcast to it."""
    if not isinstance(result, Tensor):
        return f"{type(result).__name__}, not a tensor"
    actual, shape = tuple(result.shape[:dims]), tuple(shape)
    if actual == shape or (broadcasts and _broadcasts(actual, shape)):
        return None
    needed = f"{list(shape)} is needed{', or a shape that broadcasts to it' if broadcasts else ''}"
    return f"{list(result.shape)} where {needed}: {letters}"


def _broadcasts(actual: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(actual, shape) == shape
    except RuntimeError:
        return False


def _other_type(what: str, after: Tensor, before: Tensor) -> str | None:
    if after.dtype == before.dtype:
        return None
    return f"{what} of {_type(after)} for {_type(before)}: cast them back to the input's dtype"


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def defined_at(encoding: Encoding, hook: str) -> str:
    """File and line of the hook of an encoding."""
    return line_of_function(getattr(type(encoding), hook))


def line_of_function(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
