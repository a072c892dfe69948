"""Corpora, tokens and batches: what a model is trained and judged on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.data.source import DataSource

__all__ = ["open_data"]


def open_data(recipe, write_cache: bool = True) -> DataSource:
    """Open the data that `recipe.data` names; tokenise it first if that was not done before.

    `write_cache` is False where only a checkpoint names `data.cache`: nothing is then written there.

    Raises InputError for data that cannot be had or read. See `zoo.data.source.DataSource`.
    """
    from zoo.data.sources import open_data as open_source

    return open_source(recipe, write_cache)
