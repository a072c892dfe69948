"""How many parameters an encoding learns, at one size for all of them: it is built and counted."""

from __future__ import annotations

from typing import Any

from zoo import registry
from zoo.encodings.base import Encoding, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError

WIDTH, LAYERS, HEADS, LENGTH = 256, 6, 8, 512
"""The size at which encodings are compared: model width, layers, heads, trained length in tokens."""

# An encoding that needs another is built around the first of these that it takes. None has parameters.
INSIDE = ("alibi", "rope", "sinusoidal", "none")


def learned_parameters(name: str) -> tuple[int, bool]:
    """The number of parameters of an encoding itself, with its defaults at the size of comparison, in all
    layers together; and whether it wraps another.

    Raises:
        InputError: the encoding cannot be built at that size.
    """
    stack = EncodingStack(representative(name), _size(name))
    top = [encoding for slot in stack.slots for encoding in slot]
    parts = [encoding for encoding in stack.modules() if isinstance(encoding, Encoding)]
    wrapped = {p for encoding in parts if encoding not in top for p in encoding.parameters()}
    return sum(p.numel() for p in set(stack.parameters()) - wrapped), len(parts) > len(top)


def _size(name: str) -> Size:
    return Size(WIDTH, HEADS, LAYERS, LENGTH, registry.encodings.describe(name).decoder)


def representative(name: str, size: Size | None = None) -> dict[str, Any]:
    """The encoding with its defaults, as a recipe has it, around a plain one where it needs another.

    It is one of a model of this size, by default that of comparison.

    Raises:
        InputError: it takes none of the plain ones.
    """
    wrapping = [
        option
        for option in registry.encodings.describe(name).options
        if option.default is registry.REQUIRED and option.wraps
    ]
    if not wrapping:
        return {"name": name}
    for one in ({"name": inside} for inside in INSIDE):
        spec = {"name": name} | {
            option.name: [one] if registry.holds_several(option.annotation) else one for option in wrapping
        }
        try:
            EncodingStack(spec, size or _size(name))
            return spec
        except InputError as error:
            refusal = error
    raise refusal
