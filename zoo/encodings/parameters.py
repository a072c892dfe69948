"""How many parameters an encoding learns, at one size for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo import registry
from zoo.encodings.base import Encoding, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError

WIDTH, LAYERS, HEADS, LENGTH = 256, 6, 8, 512
"""The size at which encodings are compared: model width, layers, heads, trained length in tokens."""

# What an encoding that needs another is shown around: the first that it takes. None of them learns anything.
INSIDE = ("alibi", "rope", "sinusoidal", "none")


@dataclass(frozen=True)
class Learned:
    """The parameters of an encoding itself, in all layers together, and whether it wraps others."""

    own: int
    wraps: bool

    def __str__(self) -> str:
        if self.wraps:
            return f"{self.own:,} + wrapped" if self.own else "+ wrapped"
        return f"{self.own:,}"


def comparison_size(name: str) -> Size:
    """The size of comparison, as a decoder; as an encoder for what is not for decoders."""
    return Size(WIDTH, HEADS, LAYERS, LENGTH, registry.encodings.describe(name).decoder)


def representative(name: str, size: Size) -> dict[str, Any]:
    """The encoding with its defaults, as a recipe has it; one that needs another is put around a plain one.

    Raises:
        InputError: it takes none of those.
    """
    around = [
        option
        for option in registry.encodings.describe(name).options
        if option.default is registry.REQUIRED and registry.holds_wrapped(option.annotation)
    ]
    if not around:
        return {"name": name}
    refusals = []
    for inside in ({"name": other} for other in INSIDE):
        several = {option.name: registry.holds_several(option.annotation) for option in around}
        spec = {"name": name} | {key: [inside] if many else inside for key, many in several.items()}
        try:
            EncodingStack(spec, size)
            return spec
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def learned_parameters(name: str) -> Learned:
    """The parameters that an encoding learns at the size of comparison.

    Raises:
        InputError: it cannot be imported, or not be built so.
    """
    size = comparison_size(name)
    try:
        stack = EncodingStack(representative(name, size), size)
    except InputError:
        raise
    except Exception as error:  # a stranger's code
        raise InputError(f"encoding {name!r} cannot be built: {type(error).__name__}: {error}") from error
    top = [encoding for slot in stack.slots for encoding in slot]
    parts = [encoding for encoding in stack.modules() if isinstance(encoding, Encoding)]
    wrapped = {p for encoding in parts if encoding not in top for p in encoding.parameters()}
    own = sum(p.numel() for p in set(stack.parameters()) - wrapped)
    return Learned(own, wraps=len(parts) > len(top))
