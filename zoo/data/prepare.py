"""A text is tokenized before the training that reads it."""

from __future__ import annotations

from tqdm import tqdm

from zoo.data import open_data
from zoo.data.text import SPLITS
from zoo.data.text.datasets import TextSource
from zoo.recipe import Recipe


def prepare(recipe: Recipe) -> str:
    """Tokenize the text of a recipe where that was not done before; returns the message for the user.

    Raises InputError where the text cannot be read or used, or its tokens cannot be stored.
    """
    source = open_data(recipe)
    if not isinstance(source, TextSource):
        return f"{recipe.data.name} is drawn in training: there is nothing to prepare"
    cache = source.cache
    tokens = ", ".join(f"{len(cache.streams[split]):,} {split}" for split in SPLITS)
    size = sum(path.stat().st_size for path in cache.folder.iterdir())
    where = f"{cache.folder}: {tokens} tokens, {tqdm.format_sizeof(size, 'B')} on disk"
    return f"{cache.about}\n{where}"
