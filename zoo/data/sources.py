"""Which source opens a dataset."""

from __future__ import annotations

from zoo.data.passkey import PasskeySource
from zoo.data.source import AlgorithmicSource, DataSource, MaxIndexSource, TextSource
from zoo.recipe import Recipe
from zoo.recipe.catalogue import DATASETS

OF_THEIR_OWN: dict[str, type[DataSource]] = {"passkey": PasskeySource}

OF_EXAMPLES: dict[str, type[DataSource]] = {
    "text": TextSource,
    "pointer": MaxIndexSource,
    "answers": AlgorithmicSource,
}
"""For all other datasets, by what they give."""


def source_class(name: str) -> type[DataSource]:
    """What opens a dataset."""
    return OF_THEIR_OWN.get(name) or OF_EXAMPLES[DATASETS[name].gives]


def open_data(recipe: Recipe, write_cache: bool = True) -> DataSource:
    """The data that `recipe.data` names. Raises InputError if it cannot be had."""
    return source_class(recipe.data.name)(recipe, write_cache)
