"""The kinds of value that a recipe holds, and what its sections have in common."""

from __future__ import annotations

from typing import Annotated, Any

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
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST), BeforeValidator(float_to_int)]
# Byte-level BPE has at least the 256 bytes, the end of a document and the mask.
Vocabulary = Annotated[int, Field(strict=True, ge=258, le=LARGEST), BeforeValidator(float_to_int)]
Fraction = Annotated[Number, Field(ge=0, le=1)]
# No `whole` where a fraction is taken too: to Lightning 1 is one batch and 1.0 is all of them.
Exact = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32), BeforeValidator(float_to_int)]


class Section(BaseModel):
    """A mapping of the recipe: frozen, and without room for keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataConfig(Section):
    """What every dataset has."""

    name: Text
    """The dataset."""
    sequence_length: Positive
    """Training length, in tokens."""
    batch_size: Positive
    """Sequences per optimizer step over all devices; devices and accumulation divide it."""
    workers: Count = 0
    """Loader processes per device."""
