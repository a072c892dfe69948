"""Data that is made of text: whose, where it lies, and how it is cut into tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from zoo.recipe.field_types import DataConfig, Differs, Positive, Seed, Text, Vocabulary


class TextDataConfig(DataConfig):
    """A text corpus: WikiText, or anybody's plain text."""

    name: Literal["wikitext-2", "wikitext-103", "text"]
    """The corpus; text reads data.root itself, a file or a folder of plain text files."""
    # That they are the same texts and tokens their fingerprints say.
    root: Annotated[Text | None, Differs("nothing", after_training=True)] = None
    """Folder where corpora lie. null: the environment variable ZOO_DATA, else data/."""
    cache: Annotated[Text | None, Differs("nothing", after_training=True)] = None
    """Folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/."""
    vocab_size: Vocabulary = 8192
    """Size of the byte-level BPE vocabulary, learned on the training split."""


class SampleDataConfig(TextDataConfig):
    """A corpus that the zoo writes itself, for work without a network: names and facts that recur."""

    name: Literal["sample"]
    """The generated corpus."""
    documents: Positive = 400
    """Number of documents."""
    words: Positive = 3000
    """Words per document."""
    corpus_seed: Seed = 0
    """Seed of the corpus itself, apart from the seed of the run."""


class PasskeyDataConfig(SampleDataConfig):
    """Find a number that stands in one sentence of a long text."""

    name: Literal["passkey"]
    """The generated questions."""
    corpus: Literal["wikitext-2", "wikitext-103", "text", "sample"] = "wikitext-2"
    """The corpus whose text surrounds the sentence."""
    # A long text is likely to hold every shorter number by itself.
    digits: Annotated[Positive, Field(ge=5)] = 5
    """Digits of the number."""
