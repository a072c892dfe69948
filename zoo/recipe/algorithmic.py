"""The recipe keys of the generated tasks with an answer.

A class for each task of `zoo.data.algorithmic`: its options are the keyword arguments of the task, its first
line is what `zoo list datasets` says of it. A new task is one class here and one file there.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from zoo.recipe.field_types import DataConfig, Fraction, Positive

Several = Annotated[Positive, Field(ge=2)]
"""A choice among so many; among one there is nothing to ask."""


class CopyDataConfig(DataConfig):
    """Say a random string again."""

    name: Literal["copy"]
    """The generated strings."""
    num_symbols: Several = 10
    """Symbols that strings are made of."""


class ReverseDataConfig(DataConfig):
    """Say a random string backwards."""

    name: Literal["reverse"]
    """The generated strings."""
    num_symbols: Several = 10
    """Symbols that strings are made of."""


class SortDataConfig(DataConfig):
    """Put random numbers into ascending order."""

    name: Literal["sort"]
    """The generated numbers."""
    num_symbols: Several = 10
    """Different numbers that there are."""


class AdditionDataConfig(DataConfig):
    """Add two numbers of equally many digits."""

    name: Literal["addition"]
    """The generated sums."""
    order: Literal["standard", "reversed"] = "standard"
    """The answer's digits: standard begins with the highest, reversed with the ones."""


class ParityDataConfig(DataConfig):
    """Say whether the number of ones among random bits is odd."""

    name: Literal["parity"]
    """The generated bits."""


class MajorityDataConfig(DataConfig):
    """Say which of two symbols is the more frequent."""

    name: Literal["majority"]
    """The generated bits."""


class FlipFlopDataConfig(DataConfig):
    """Say what was last written among instructions to write, ignore and read."""

    name: Literal["flip_flop"]
    """The generated instructions."""
    ignore_probability: Fraction = 0.8
    """Probability of an instruction to ignore; to write and to read share the rest equally."""
    num_symbols: Several = 2
    """Symbols that can be written."""


class SelectiveCopyDataConfig(DataConfig):
    """Say again the few symbols that are strewn among noise."""

    name: Literal["selective_copy"]
    """The generated strings."""
    num_data: Positive = 16
    """Symbols to be said again, at every length."""
    num_symbols: Several = 15
    """Symbols that there are besides the noise."""


class AssociativeRecallDataConfig(DataConfig):
    """Say the value of each key that is asked for (multi-query associative recall)."""

    name: Literal["associative_recall"]
    """The generated pairs and queries."""
    num_pairs: Positive = 8
    """Pairs of a key and a value, at every length; each is asked for once."""
    num_keys: Several = 32
    """Keys that there are; no two pairs have the same, so that they are at least num_pairs."""
    num_values: Several = 32
    """Values that there are."""


class DyckDataConfig(DataConfig):
    """Say how deep a prefix of well-nested brackets is, then close them."""

    name: Literal["dyck"]
    """The generated brackets."""
    num_kinds: Positive = 2
    """Kinds of bracket."""
    max_depth: Positive = 8
    """Most brackets that are open at a time."""


AlgorithmicDataConfig = (
    CopyDataConfig
    | ReverseDataConfig
    | SortDataConfig
    | AdditionDataConfig
    | ParityDataConfig
    | MajorityDataConfig
    | FlipFlopDataConfig
    | SelectiveCopyDataConfig
    | AssociativeRecallDataConfig
    | DyckDataConfig
)

TASKS: dict[str, type[DataConfig]] = {
    get_args(config.model_fields["name"].annotation)[0]: config for config in get_args(AlgorithmicDataConfig)
}
"""The config of each task, by its name."""


def options_of(name: str) -> tuple[str, ...]:
    """The keys of a task that are its own, in the order of its config."""
    return tuple(key for key in TASKS[name].model_fields if key not in DataConfig.model_fields)
