"""Types of the values of a recipe, the base of its sections, and what a change of a key affects."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict


def float_to_int(value: Any) -> Any:
    """`1e3` is a whole number: YAML reads it as a float, the field says that an int is meant."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


LARGEST = 2**63 - 1
"""Largest whole number: torch counts in 64 bits."""

# Strict: neither text in quotes nor `true` is a number.
Int = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST), BeforeValidator(float_to_int)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Positive = Annotated[int, Field(strict=True, gt=0, le=LARGEST), BeforeValidator(float_to_int)]
AtLeastTwo = Annotated[Positive, Field(ge=2)]
"""Number of choices."""
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST), BeforeValidator(float_to_int)]
# Byte-level BPE has at least the 256 bytes, the end of a document and the mask.
Vocabulary = Annotated[int, Field(strict=True, ge=258, le=LARGEST), BeforeValidator(float_to_int)]
Fraction = Annotated[Number, Field(ge=0, le=1)]
AboveZero = Annotated[Number, Field(gt=0)]
AboveOne = Annotated[Number, Field(gt=1)]
Factor = Annotated[Number, Field(ge=1)]
Decay = Annotated[Number, Field(ge=0, lt=1)]
"""Decay rate of a running mean, per step."""
NotNegative = Annotated[Number, Field(ge=0)]
# No `float_to_int` where a fraction is valid too: to Lightning 1 is one batch and 1.0 is all of them.
Exact = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
CountOrFraction = Annotated[Exact, Field(gt=0)] | Annotated[Number, Field(gt=0, le=1)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32), BeforeValidator(float_to_int)]


@dataclass(frozen=True)
class Affects:
    """Metadata of a field: what another value of its key changes about a run.

    `effect` is one of

    - `weights`: the trained weights. This is the effect of a field without this metadata.
    - `results`: which states of the run are saved, validated and called best, not the states themselves.
    - `rounding`: the weights by rounding and random draws alone: devices, parts of a batch, kernels.
    - None: paths, logs, evaluation of the trained model.
    """

    effect: Literal["weights", "results", "rounding"] | None
    after_training: bool = False
    """Whether a trained model may be evaluated with another value."""


Folder = Annotated[Text | None, Affects(None, after_training=True)]
"""A path that may change on resume: a fingerprint identifies the files in it."""


def strict_type(annotation: Any) -> Any:
    """The annotation with the recipe's strict numbers, and without the types that YAML cannot hold."""
    plain = {int: Int, float: Number, bool: Flag, None: NoneType}
    if annotation in plain:
        return plain[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        members = [member for member in arguments if _is_plain(member)]
        if not members:
            return Any
        if int in members and float in members:
            # To a constructor that takes both, 1 and 1.0 may mean different things.
            members = [Exact if member is int else member for member in members]
        return typing.Union[tuple(strict_type(member) for member in members)]  # noqa: UP007
    if origin in (list, tuple, dict):
        return origin[tuple(part if part is ... else strict_type(part) for part in arguments)]
    if origin is Annotated:
        if any(Strict() in getattr(one, "metadata", ()) for one in arguments[1:]):
            return annotation
        return Annotated[strict_type(arguments[0]), *arguments[1:]]
    return annotation


def _is_plain(annotation: Any) -> bool:
    """Whether YAML can hold values of a type."""
    kind = typing.get_origin(annotation) or annotation
    if kind is Annotated:
        return _is_plain(annotation.__origin__)
    return not isinstance(kind, type) or kind in (int, float, bool, str, list, tuple, dict, NoneType, Any)


class Section(BaseModel):
    """A mapping of the recipe: frozen, with no other keys than its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
