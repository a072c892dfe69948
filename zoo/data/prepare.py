"""A text is tokenized before the training that reads it."""

from __future__ import annotations

from tqdm import tqdm

from zoo.data import build_dataset
from zoo.data.text import SPLITS
from zoo.data.text.datasets import TokenizedText
from zoo.recipe.sections import DataConfig


def prepare(data: DataConfig) -> str:
    """Tokenize the text of a recipe where that was not done before; returns the message for the user.

    Raises InputError where the text cannot be read, or its tokens cannot be stored.
    """
    dataset = build_dataset(data)
    if not isinstance(dataset, TokenizedText):
        return f"{data.name} is drawn in training: there is nothing to prepare"
    cache = dataset.tokens()
    tokens = ", ".join(f"{len(cache.streams[split]):,} {split}" for split in SPLITS)
    size = sum(path.stat().st_size for path in cache.folder.iterdir())
    text = f" of {tqdm.format_sizeof(cache.text_bytes, 'B')} of text" if cache.text_bytes else ""
    return f"{cache.folder}: {tokens} tokens{text}, {tqdm.format_sizeof(size, 'B')} on disk"
