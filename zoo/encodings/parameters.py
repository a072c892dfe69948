"""How many parameters an encoding learns, at one size for all of them.

The zoo's own encodings state it, and nothing heavy is imported to read that; others are built and counted.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo import registry
from zoo.errors import InputError

if TYPE_CHECKING:
    from zoo.encodings.base import Size

WIDTH, LAYERS, HEADS, LENGTH = 256, 6, 8, 512
"""The size at which encodings are compared: model width, layers, heads, trained length in tokens."""

# What an encoding that needs another is shown around: the first that it takes. None of them learns anything.
INSIDE = ("alibi", "rope", "sinusoidal", "none")

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


@dataclass(frozen=True)
class Learned:
    """The parameters of an encoding itself, in all layers together, and whether it wraps others."""

    own: int
    wraps: bool

    def __str__(self) -> str:
        if self.wraps:
            return f"{self.own:,} + wrapped" if self.own else "+ wrapped"
        return f"{self.own:,}"


def learned_parameters(name: str) -> Learned:
    """The parameters that an encoding learns at the size of comparison.

    Raises:
        InputError: it is a plugin's, and cannot be imported, or not be built so.
    """
    if registry.encodings.describe(name).builtin:
        return stated_parameters(name, WIDTH, LAYERS, HEADS, LENGTH)
    from zoo.encodings.base import Size  # imports torch

    causal = registry.encodings.describe(name).decoder
    return counted_parameters(name, Size(WIDTH, HEADS, LAYERS, LENGTH, causal))


def stated_parameters(name: str, width: int, layers: int, heads: int, length: int) -> Learned:
    """What the zoo's own encoding states by `Encoding.learns`, for a model of this size."""
    sizes = {"width": width, "layers": layers, "heads": heads, "length": length, "head_width": width // heads}

    def value(node: ast.expr) -> int:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATORS[type(op)](value(left), value(right))
            case ast.Name(id=size):
                return sizes[size]
            case ast.Constant(value=int(number)):
                return number
        raise ValueError(f"encoding {name!r}: `learns` has {ast.unparse(node)}")

    stated = registry.encodings.describe(name).learns
    own = value(ast.parse(stated, mode="eval").body) if stated else 0
    return Learned(own, wraps=bool(_wrapping(name)))


def counted_parameters(name: str, size: Size) -> Learned:
    """The parameters that an encoding with its defaults has in a model of this size.

    Raises:
        InputError: it cannot be imported, or not be built so.
    """
    from zoo.encodings.base import Encoding  # imports torch, as the next
    from zoo.encodings.stack import EncodingStack

    stack = EncodingStack(representative(name, size), size)
    top = [encoding for slot in stack.slots for encoding in slot]
    parts = [encoding for encoding in stack.modules() if isinstance(encoding, Encoding)]
    wrapped = {p for encoding in parts if encoding not in top for p in encoding.parameters()}
    own = sum(p.numel() for p in set(stack.parameters()) - wrapped)
    return Learned(own, wraps=len(parts) > len(top))


def representative(name: str, size: Size) -> dict[str, Any]:
    """The encoding with its defaults, as a recipe has it; one that needs another is put around a plain one.

    Raises:
        InputError: it takes none of those.
    """
    from zoo.encodings.stack import EncodingStack  # imports torch

    wrapping = _wrapping(name)
    if not wrapping:
        return {"name": name}
    for one in ({"name": inside} for inside in INSIDE):
        spec = {"name": name} | {
            option.name: [one] if registry.holds_several(option.annotation) else one for option in wrapping
        }
        try:
            EncodingStack(spec, size)
            return spec
        except InputError as error:
            refusal = error
    raise refusal


def _wrapping(name: str) -> list[registry.Option]:
    """The options that must hold another encoding."""
    return [
        option
        for option in registry.encodings.describe(name).options
        if option.default is registry.REQUIRED and registry.holds_wrapped(option.annotation)
    ]
