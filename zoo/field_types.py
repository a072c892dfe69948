"""Types of the values of a recipe, the base of its sections, and what a field says of its own changes."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def float_to_int(value: Any) -> Any:
    """`1e3` is a whole number: YAML reads it as a float, the field says that an int is meant."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


LARGEST = 2**63 - 1
"""Of a whole number: torch counts in 64 bits."""

# Strict: text in quotes is not a number, and `true` is no number either.
Int = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST), BeforeValidator(float_to_int)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Positive = Annotated[int, Field(strict=True, gt=0, le=LARGEST), BeforeValidator(float_to_int)]
Several = Annotated[Positive, Field(ge=2)]
"""A choice among so many; among one there is nothing to ask."""
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST), BeforeValidator(float_to_int)]
# Byte-level BPE has at least the 256 bytes, the end of a document and the mask.
Vocabulary = Annotated[int, Field(strict=True, ge=258, le=LARGEST), BeforeValidator(float_to_int)]
Fraction = Annotated[Number, Field(ge=0, le=1)]
AboveZero = Annotated[Number, Field(gt=0)]
AboveOne = Annotated[Number, Field(gt=1)]
Factor = Annotated[Number, Field(ge=1)]
# What is kept of a running mean at each step.
Decay = Annotated[Number, Field(ge=0, lt=1)]
NotNegative = Annotated[Number, Field(ge=0)]
# No `float_to_int` where a fraction is taken too: to Lightning 1 is one batch and 1.0 is all of them.
Exact = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32), BeforeValidator(float_to_int)]


@dataclass(frozen=True)
class Differs:
    """Metadata of a field: what another value of it changes about a run, and so where it may differ.

    `effect` is one of

    - `weights`: it decides the weights, as does a field without this metadata. It may differ nowhere.
    - `compared`: what comparable runs are made to differ in; no run may change it on resume.
    - `nothing`: nothing about training: where files lie, what is logged, how the trained model is evaluated.
    - `saved`: which of the states that a run passes through are saved or validated, not which states those
      are. A resumed run may change it, and its card records that.
    - `best`: which state is best.ckpt. Comparable runs may differ in it; within a run its scores are compared
      with each other.
    - `rounding`: on which devices, in which parts or by which kernels the same mathematics is computed. Sums
      are rounded in another order, and each part of a batch has random draws of its own. A resumed run may
      change it, and its card records that; it decides the speed.
    - `length`: how long the run is. A resumed run may change it where its learning rates allow.
    """

    effect: Literal["weights", "compared", "nothing", "saved", "best", "rounding", "length"]
    after_training: bool = False
    """Whether a trained model may be evaluated with another value: it stays the same model."""
    speed: bool = False
    """Whether it decides the speed and nothing else."""


Folder = Annotated[Text | None, Differs("nothing", after_training=True)]
"""A path that may be another one on resume: what lies there has a fingerprint."""


def strict_type(annotation: Any) -> Any:
    """The annotation with the recipe's strict numbers, and without the types that YAML cannot say."""
    plain = {int: Int, float: Number, bool: Flag, None: NoneType}
    if annotation in plain:
        return plain[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        members = [member for member in arguments if member is not typing.Never]
        if not members:
            return typing.Any
        if int in members and float in members:
            # 1 and 1.0 may mean two things to one who takes both.
            return typing.Union[tuple(_exact(member) for member in members)]  # noqa: UP007
        return typing.Union[tuple(strict_type(member) for member in members)]  # noqa: UP007
    if origin in (list, tuple, dict):
        return origin[tuple(part if part is ... else strict_type(part) for part in arguments)]
    if origin is Annotated:
        return Annotated[strict_type(arguments[0]), *arguments[1:]]
    return annotation


def _exact(member: Any) -> Any:
    return Exact if member is int else strict_type(member)


OPTION_TYPES = (
    "Int", "Number", "Flag", "Text", "Positive", "Several", "Count", "Vocabulary", "Fraction", "AboveZero",
    "AboveOne", "NotNegative", "Factor", "Decay", "Seed", "Folder",
)  # fmt: skip
"""What an option of a registered class may be annotated with, beside Python's own types."""


class Section(BaseModel):
    """A mapping of the recipe: frozen, and without room for keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
