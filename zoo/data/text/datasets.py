"""Corpora by their names in a recipe, and where corpora and caches are by default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zoo.data.dataset import Dataset
from zoo.data.text.corpus import Corpus
from zoo.errors import InputError, Problem
from zoo.field_types import Folder, Positive, Seed, Vocabulary
from zoo.registry import register

if TYPE_CHECKING:
    from zoo.data.source import DataSource
    from zoo.data.text.cache import TokenCache
    from zoo.recipe import Recipe


class TextDataset(Dataset):
    """A text corpus; a subclass gives `corpus`.

    Args:
        root: folder where corpora lie. null: the environment variable ZOO_DATA, else data/.
        cache: folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/.
        vocab_size: size of the byte-level BPE vocabulary, learned on the training split.
    """

    gives = "text"
    vocab_size: ClassVar[int] = 0  # set by the constructor

    def __init__(self, *, root: Folder = None, cache: Folder = None, vocab_size: Vocabulary = 8192):
        self.root, self.cache, self.vocab_size = root, cache, vocab_size

    def corpus(self) -> Corpus:
        """The documents of each split.

        Raises:
            InputError: they cannot be had.
        """
        raise NotImplementedError

    def open(self, recipe: Recipe, write_cache: bool = True) -> DataSource:
        from zoo.data.text.source import TextSource

        return TextSource(recipe, self.gives, self.tokens(write_cache))

    def tokens(self, write_cache: bool = True) -> TokenCache:
        """The corpus, tokenised. Raises InputError where it cannot be read."""
        from zoo.data.text.source import open_tokens

        folder = Path(self.cache) if self.cache else default_cache()
        return open_tokens(self.corpus(), self.vocab_size, folder, default_cache(), write_cache)


@register.dataset("wikitext-2")
class WikiText2(TextDataset):
    """2 million words of Wikipedia.

    WikiText that is not on disk is fetched when it is first read.

    Args:
        root: folder where corpora lie. null: the environment variable ZOO_DATA, else data/.
        cache: folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/.
        vocab_size: size of the byte-level BPE vocabulary, learned on the training split.
    """

    source = "data.root/wikitext-2, else fetched by `datasets`"

    def corpus(self) -> Corpus:
        from zoo.data.text.wikitext import open_wikitext

        return open_wikitext(self.name, Path(self.root) if self.root else default_root())


@register.dataset("wikitext-103")
class WikiText103(WikiText2):
    """103 million words of Wikipedia.

    Args:
        root: folder where corpora lie. null: the environment variable ZOO_DATA, else data/.
        cache: folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/.
        vocab_size: size of the byte-level BPE vocabulary, learned on the training split.
    """

    source = "data.root/wikitext-103, else fetched by `datasets`"


@register.dataset("text")
class PlainText(TextDataset):
    """Anybody's plain text, split by document.

    Args:
        root: a file or a folder of plain text files.
        cache: folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/.
        vocab_size: size of the byte-level BPE vocabulary, learned on the training split.
    """

    source = "data.root: a file or a folder"

    def corpus(self) -> Corpus:
        from zoo.data.text.plain_text import open_text

        if self.root is None:
            raise InputError(Problem("say which folder or file of plain text to read", key="data.root"))
        return open_text(Path(self.root))


@register.dataset("sample")
class Sample(TextDataset):
    """Generated text whose names and facts recur over long distances, for work without a network.

    Args:
        root: not used.
        cache: folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/.
        vocab_size: size of the byte-level BPE vocabulary, learned on the training split.
        documents: number of documents.
        words: words per document.
        corpus_seed: seed of the corpus itself, apart from the seed of the run.
    """

    source = "generated, seeded"

    def __init__(
        self,
        *,
        root: Folder = None,
        cache: Folder = None,
        vocab_size: Vocabulary = 8192,
        documents: Positive = 400,
        words: Positive = 3000,
        corpus_seed: Seed = 0,
    ):
        super().__init__(root=root, cache=cache, vocab_size=vocab_size)
        self.documents, self.words, self.corpus_seed = documents, words, corpus_seed

    def corpus(self) -> Corpus:
        from zoo.data.text.sample import open_sample

        return open_sample(self.documents, self.words, self.corpus_seed)


def default_root() -> Path:
    """Where corpora are looked for when the recipe does not say: ZOO_DATA, or `data/`."""
    return Path(os.environ.get("ZOO_DATA") or "data")


def default_cache() -> Path:
    """Where tokens are kept when the recipe does not say."""
    return default_root() / "cache"
