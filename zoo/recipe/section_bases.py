"""The sections of a recipe that hold a name: the keys that each has whatever it names."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from zoo.field_types import Count, Differs, Exact, Number, Positive, Section, Text
from zoo.recipe.located_tree import describe_value

CountOrFraction = Annotated[Exact, Field(gt=0)] | Annotated[Number, Field(gt=0, le=1)]


class DataConfig(Section):
    """What every dataset has."""

    name: Text
    """The dataset."""
    sequence_length: Positive
    """Training length, in tokens."""
    batch_size: Positive
    """Sequences per optimizer step over all devices; devices and accumulation divide it."""
    workers: Annotated[Count, Differs("nothing", after_training=True, speed=True)] = 0
    """Loader processes per device."""


class TaskConfig(Section):
    """What every task has."""

    name: Text
    """The task."""


class OptimizerConfig(Section):
    """What every optimizer has, and its schedule."""

    name: Text = "adamw"
    """The optimizer."""
    lr: Annotated[Number, Field(gt=0)]
    """Highest learning rate, reached at the end of the warm-up."""
    warmup_steps: Count = 100
    """Optimizer steps in which the learning rate rises linearly from zero."""
    schedule: Text = "cosine"
    """How the learning rate changes after the warm-up."""


def _stride(value: object, check: ValidatorFunctionWrapHandler) -> int | float:
    """One message for both members of the union."""
    try:
        return check(value)
    except ValidationError as error:
        message = "must be a whole number of tokens above 0, or a fraction of the window up to 1, got {given}"
        raise PydanticCustomError("stride", message, {"given": describe_value(value)}) from error


Stride = Annotated[CountOrFraction, WrapValidator(_stride)]


class EvaluateConfig(Section):
    """How the trained model is evaluated."""

    lengths: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    """Lengths in tokens. null: 1, 2 and 4 times data.sequence_length. Protocol fixed_targets scores the
    documents that hold the longest of them."""
    protocols: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    """Evaluation protocols. null: the first that the task knows."""
    max_tokens: Positive = 262144
    """Tokens of text scored at each length; no length may be longer."""
    samples: Positive = 1024
    """Generated sequences scored at each length."""
    batch_tokens: Positive = 16384
    """Tokens in one evaluation batch."""
    max_seconds: Annotated[Number, Field(gt=0)] | None = None
    """Seconds that a length may take; then it is stopped and left out with a note. null: as long as it
    needs."""
    stride: Stride = 0.5
    """Protocol sliding: tokens between the beginnings of two windows, or a fraction of the window."""
    targets: Positive = 200
    """Protocol fixed_targets: tokens scored at the end of each document; at most the shortest length."""
    bins_per_octave: Positive = 2
    """Protocol per_position: bins of positions to every doubling of the context."""


BASES: dict[str, type[Section]] = {
    "data": DataConfig,
    "task": TaskConfig,
    "optimizer": OptimizerConfig,
    "evaluate": EvaluateConfig,
}
