"""Corpora, tokens and batches: what a model is trained and judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.data.dataset import Dataset
    from zoo.data.source import DataSource
    from zoo.recipe.schema import Recipe
    from zoo.recipe.sections import DataConfig

__all__ = ["build_dataset", "open_data"]


def build_dataset(data: DataConfig) -> Dataset:
    """The dataset that a recipe's `data` section names, not opened yet. Raises InputError for wrong options."""
    from zoo import registry
    from zoo.recipe.sections import construct

    return construct(registry.datasets, data.name, data)


def open_data(recipe: Recipe, write_cache: bool = True) -> DataSource:
    """Open the data that `recipe.data` names; tokenise it first if that was not done before.

    `write_cache` is False where only a checkpoint names `data.cache`: nothing is then written there.

    Raises InputError for data that cannot be had or read. See `zoo.data.source.DataSource`.
    """
    return build_dataset(recipe.data).open(recipe, write_cache)
