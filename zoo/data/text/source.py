"""The tokens of a corpus as training examples."""

from __future__ import annotations

from pathlib import Path

from torch.utils.data import Dataset

from zoo.data.blocks import Blocks
from zoo.data.masking import MaskedBlocks
from zoo.data.source import DataSource
from zoo.data.text.cache import TokenCache, open_cache, open_unwritten
from zoo.data.text.corpus import Corpus
from zoo.recipe import Recipe
from zoo.registry import tasks


class TextSource(DataSource):
    """Tokens of a corpus.

    Args:
        kind: as of `DataSource`.
        tokens: the corpus, tokenised.
    """

    def __init__(self, recipe: Recipe, kind: str, tokens: TokenCache):
        super().__init__(recipe, kind, tokens.tokenizer.vocab_size)
        self.cache = tokens
        self.tokenizer = tokens.tokenizer
        self.mask_token = self.tokenizer.mask_token
        self.units = self.cache.units
        self.fingerprint = {"corpus": self.cache.corpus, "tokenizer": self.tokenizer.fingerprint}

    def stream(self, split: str):
        """All tokens of a split, as a `TokenStream`."""
        return self.cache.streams[split]

    def dataset(self, split: str, length: int | None = None) -> Dataset:
        """Blocks of `length` tokens (the training length if None), masked where the task asks for it."""
        recipe = self.recipe
        length = length or recipe.data.sequence_length
        if not tasks.describe(recipe.task.name).hides_tokens:
            return Blocks(self.stream(split), length)
        return MaskedBlocks(
            self.stream(split),
            length,
            mask_fraction=recipe.task.mask_fraction,
            mask_token=self.mask_token,
            end_token=self.tokenizer.end_token,
            vocab_size=self.vocab_size,
            # Runs that differ in the seed alone are judged on the same draw.
            seed=recipe.seed if split == "train" else 0,
            epoch=0 if split == "train" else None,
        )

    def save_tokenizer(self, folder: Path) -> None:
        self.tokenizer.save(Path(folder) / "tokenizer.json")


def open_tokens(corpus: Corpus, vocab_size: int, folder: Path, own: Path, write_cache: bool) -> TokenCache:
    """The tokens of a corpus, made first where a cache does not hold them.

    Args:
        folder: the cache that the recipe names.
        own: the default cache. Without `write_cache` nothing is written into any other.

    Raises:
        InputError: the corpus cannot be read, or the cache cannot be written.
    """
    if write_cache or folder == own:
        return open_cache(corpus, vocab_size, folder)
    return open_unwritten(corpus, vocab_size, folder, own) or open_cache(corpus, vocab_size, own)
