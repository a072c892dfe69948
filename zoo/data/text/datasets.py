"""Corpora by their names in a recipe, and their tokens as training examples."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from zoo import registry
from zoo.data import Dataset
from zoo.data.blocks import Blocks, MaskedBlocks
from zoo.data.source import DataSource
from zoo.data.text import Corpus
from zoo.data.text.cache import TokenCache, open_cache
from zoo.data.text.files import open_text
from zoo.data.text.hub import open_hub
from zoo.data.text.mix import mix
from zoo.data.text.sample import open_sample
from zoo.data.text.token_files import open_token_files
from zoo.data.text.tokenizer import CHARACTERS, MASK, TOKENIZER, TextTokenizer, open_tokenizer
from zoo.data.text.tokens import TokenStream
from zoo.data.text.wikitext import open_wikitext
from zoo.errors import InputError, Problem
from zoo.recipe import Recipe
from zoo.recipe.fields import AboveZero, Affects, Count, Folder, Positive, Section, Seed, Text, Vocabulary
from zoo.recipe.sections import DataConfig, checked_by, dataset_section
from zoo.registry import register, tasks


class TokenizedText(Dataset):
    """A text in tokens; a subclass gives `corpus`.

    Args:
        root: folder where corpora lie. null: the environment variable ZOO_DATA, else data/.
        cache: folder for tokenizers and token files. null: the folder cache in ZOO_DATA, else in data/.
        vocab_size: most tokens of the vocabulary that is learned on the training split.
        tokenizer: null: byte-level BPE is learned. `characters`: the characters of the training split; any
            other is its UTF-8 bytes. Else a tokenizer.json to use instead, its folder, or a model of the hub.
    """

    vocab_size: ClassVar[int] = 0  # set by the constructor

    def __init__(
        self,
        *,
        root: Folder = None,
        cache: Folder = None,
        vocab_size: Vocabulary = 8192,
        tokenizer: Annotated[Literal["characters"] | Text | None, Affects(None, after_training=True)] = None,
    ):
        self.root, self.cache, self.vocab_size, self.tokenizer = root, cache, vocab_size, tokenizer

    def corpus(self) -> Corpus:
        """The documents of each split. Raises InputError where they are not available."""
        raise NotImplementedError

    def tokens(self, recipe: Recipe | None = None, build: bool = True) -> TokenCache | None:
        """The tokenized corpus; None where it is not tokenized yet and `build` is False. All of it is one
        split where the recipe scores all.

        Raises InputError where it cannot be read; before that for a tokenizer that the recipe cannot use.
        """
        folder = Path(self.cache) if self.cache else default_root() / "cache"
        given, characters = self.given_tokenizer(), self.tokenizer == CHARACTERS
        if given is not None and recipe is not None:
            _validate_tokenizer(given, recipe)
        scores_all = recipe is not None and recipe.evaluate.split == "all"
        corpus = (lambda: self.corpus().whole()) if scores_all else self.corpus
        return open_cache(corpus, self.vocab_size, folder, given, build, characters)

    def given_tokenizer(self) -> TextTokenizer | None:
        """The user's own tokenizer; None where one is learned. Raises InputError where it cannot be used."""
        return open_tokenizer(self.tokenizer) if self.tokenizer not in (None, CHARACTERS) else None


def _validate_tokenizer(tokenizer: TextTokenizer, recipe: Recipe) -> None:
    """Raises InputError for one that the task or the packing of a recipe cannot use."""
    hides = tasks.describe(recipe.task.name).hides_tokens
    if not (tokenizer.spells_text or hides):
        message = "WordPiece drops spaces: bits per byte are unknown, and only masked tokens are scored"
        raise InputError(Problem(message, key="data.tokenizer"))
    if hides and tokenizer.mask_token is None:
        message = f"has no token {MASK}, which hides the tokens to predict"
        raise InputError(Problem(message, key="data.tokenizer"))
    if getattr(recipe.data, "packing", None) == "separate" and tokenizer.end_token is None:
        message = "separate documents need a tokenizer with a token that closes a document"
        raise InputError(Problem(message, key="data.packing"))


class TextDataset(TokenizedText):
    """A text corpus; a subclass gives `corpus`.

    Args:
        packing: windows of tokens cross documents. `packed`: a token also sees the earlier documents of its
            window. `separate`: it sees its own document alone, and positions begin anew with each document,
            which the token that closes the one before it opens unless tokens are masked.
        lengths: each training step cuts its sequences into windows of one of these lengths, drawn with the
            seed; they divide sequence_length, and a repeated one is drawn more often. null: they stay whole.
    """

    gives = "text"

    def __init__(
        self,
        *,
        packing: Annotated[Literal["packed", "separate"], Affects("weights", after_training=True)] = "packed",
        lengths: tuple[Positive, ...] | None = None,
        **text: Any,
    ):
        super().__init__(**text)
        self.packing, self.lengths = packing, lengths or ()

    def validate(self, data: DataConfig) -> None:
        if odd := [one for one in self.lengths if data.sequence_length % one]:
            message = f"{odd[0]} does not divide data.sequence_length={data.sequence_length}"
            raise InputError(Problem(message, key="data.lengths"))

    def open(self, recipe: Recipe) -> DataSource:
        source = TextSource(recipe, self.gives, self.tokens(recipe), self.packing == "separate")
        source.lengths = self.lengths
        return source


class TextSource(DataSource):
    """The tokens of a corpus.

    Args:
        separate: each token sees its own document alone.
    """

    def __init__(self, recipe: Recipe, kind: str, tokens: TokenCache, separate: bool = False):
        super().__init__(recipe, kind, tokens.tokenizer.vocab_size)
        self.separate, self.cache, self.about = separate, tokens, tokens.about
        self.tokenizer, self.units, self._streams = tokens.tokenizer, tokens.units, tokens.streams
        if recipe.evaluate.split == "all":
            self._streams = {"all": tokens.streams["valid"]}
        self.fingerprint = {"corpus": tokens.corpus, "tokenizer": self.tokenizer.fingerprint}
        if tokens.split is not None:
            self.fingerprint["split"] = tokens.split

    def stream(self, split: str) -> TokenStream:
        """All tokens of a split. Raises InputError for another one where all documents are scored."""
        if split not in self._streams:
            message = f"all documents are scored, and none are left for {split}; choose valid or test"
            raise InputError(Problem(message, key="evaluate.split"))
        return self._streams[split]

    def beginnings(self, split: str, size: int, limit: int) -> TextSource:
        """The same data with documents of a split cut after `size` tokens; see `TokenStream.beginnings`."""
        made, cut = copy.copy(self), self.stream(split).beginnings(size, limit, self.tokenizer.end_token)
        made._streams = {**self._streams, split: cut}
        made.fingerprint = {**self.fingerprint, "max_tokens_per_document": str(size)}
        return made

    def dataset(self, split: str, length: int | None = None) -> Blocks | MaskedBlocks:
        """Blocks of `length` tokens (the training length if None), masked where the task asks for it."""
        recipe, stream = self.recipe, self.stream(split)
        length = length or recipe.data.sequence_length
        if not tasks.describe(recipe.task.name).hides_tokens:
            return Blocks(stream, length, self.separate)
        fraction, epoch = recipe.task.mask_fraction, 0 if split == "train" else None
        draws = self.tokenizer, self.seed(split), epoch
        return MaskedBlocks(stream, length, fraction, *draws, self.separate)

    def save_tokenizer(self, folder: Path) -> None:
        self.tokenizer.save(folder / TOKENIZER)


@register.dataset("wikitext-2")
class WikiText2(TextDataset):
    """2 million words of Wikipedia.

    WikiText that is not on disk is fetched when it is first read.
    """

    source = "data.root/wikitext-2, else fetched by `datasets`"

    def corpus(self) -> Corpus:
        return open_wikitext(self.name, Path(self.root) if self.root else default_root())


@register.dataset("wikitext-103")
class WikiText103(WikiText2):
    """103 million words of Wikipedia."""

    source = "data.root/wikitext-103, else fetched by `datasets`"


@register.dataset("text")
class PlainText(TextDataset):
    """Your own text, in splits by name or by document.

    Args:
        root: a file, a folder of files (.txt, .md, .jsonl, .json, .csv, .parquet; also .gz, .bz2, .xz,
            and .zst with `zstandard`), or a folder that `datasets` has saved.
        column: where records have their text.
        whole: all documents are for validation and none for training: a text that is only evaluated.
    """

    source = "data.root: a file or a folder"

    def __init__(self, *, column: Text = "text", whole: bool = False, **text: Any):
        super().__init__(**text)
        self.column, self.whole = column, whole

    def corpus(self) -> Corpus:
        if self.root is None:
            raise InputError(Problem("say which folder or file of text to read", key="data.root"))
        corpus = open_text(Path(self.root), self.column)
        return corpus.whole() if self.whole else corpus


@register.dataset("hub")
class Hub(TextDataset):
    """A dataset of the Hugging Face hub, by its id.

    Args:
        id: of the dataset, or a folder that `datasets.load_dataset` opens.
        root: not used.
        config: which of its configurations; null: the only one, or the default.
        revision: branch, tag or commit; null: the newest when it is first read.
        files: pattern of the files to fetch, such as `sample/10BT/00*.parquet`; null: all that the
            configuration has.
        split: the one split to read, or a slice such as `train[:5%]`, which is divided into train, validation
            and test; null: all of them, by name.
        column: which column holds the text.
    """

    source = "data.id, fetched by `datasets`"

    def __init__(
        self,
        *,
        id: Text,
        config: Text | None = None,
        revision: Text | None = None,
        files: Text | None = None,
        split: Text | None = None,
        column: Text = "text",
        **text: Any,
    ):
        super().__init__(**text)
        self.id, self.config, self.revision, self.column = id, config, revision, column
        self.files, self.split = files, split

    def corpus(self) -> Corpus:
        return open_hub(self.id, self.config, self.revision, self.files, self.split, self.column)


@register.dataset("tokens")
class Tokens(TextDataset):
    """Files of tokens that others have written, read where they are.

    Args:
        root: a folder of .bin files with train, valid (val) or test in their names, or one file: raw as
            nanoGPT's, with a header as llm.c's and modded-nanogpt's, or with an index (.idx) as Megatron's.
        tokenizer: that of the files: a tokenizer.json, its folder, or a model of the hub.
        valid_tokens: where no file is for validation: at least so many tokens of the last documents of train.
        vocab_size: not used.
    """

    source = "data.root: .bin files"

    def __init__(
        self,
        *,
        tokenizer: Annotated[Text, Affects(None, after_training=True)],
        valid_tokens: Count = 0,
        **text: Any,
    ):
        super().__init__(tokenizer=tokenizer, **text)
        self.valid_tokens = valid_tokens

    def given_tokenizer(self) -> TextTokenizer:
        return open_tokenizer(self.tokenizer)

    def corpus(self) -> Corpus:
        if self.root is None:
            raise InputError(Problem("say which folder or file of tokens to read", key="data.root"))
        return open_token_files(Path(self.root), self.valid_tokens)


def corpus_section(spec: Any) -> Section:
    """The options of a corpus in a mix, of a name or a mapping of a name and options."""
    every = registry.datasets.all().items()  # one with its own tokenizer has tokens and no text
    own = TokenizedText.given_tokenizer
    known = [name for name, one in every if one.gives == "text" and one.cls.given_tokenizer is own]
    return dataset_section(spec, known, ("cache", "vocab_size", "tokenizer", "packing", "lengths"))


@register.dataset("mix")
class Mix(TextDataset):
    """Several corpora mixed by weight, with one tokenizer for all, until the first of them is used up.

    Args:
        of: the corpora; names, or mappings of a name and its options.
        weights: the share of each in the bytes of the text. null: all the same.
        root: folder where those look that say none.
    """

    source = "data.of: other corpora"

    def __init__(
        self,
        *,
        of: Annotated[
            tuple[Annotated[Text | dict[str, Any], checked_by(corpus_section)], ...], Field(min_length=2)
        ],
        weights: tuple[AboveZero, ...] | None = None,
        **text: Any,
    ):
        super().__init__(**text)
        self.of, self.weights = of, weights
        if weights is not None and len(weights) != len(of):
            message = f"{len(weights)} weights for {len(of)} corpora in data.of"
            raise InputError(Problem(message, key="data.weights"))

    def corpus(self) -> Corpus:
        corpora = []
        for spec in self.of:
            section = corpus_section(spec)
            options = {key: value for key, value in section if key != "name" and value is not None}
            given = {"root": self.root, "cache": self.cache} | options
            corpora.append(registry.datasets.load(section.name)(**given).corpus())
        return mix(corpora, self.weights or (1,) * len(corpora))


@register.dataset("sample")
class SampleText(TextDataset):
    """Generated text whose names and facts recur over long distances, for work without a network.

    Args:
        root: not used.
        documents: number of documents.
        words: words per document.
        corpus_seed: seed of the corpus itself, apart from the seed of the run.
    """

    source = "generated, seeded"

    def __init__(
        self,
        *,
        documents: Annotated[Positive, Field(ge=3)] = 400,
        words: Annotated[Positive, Field(ge=50)] = 3000,
        corpus_seed: Seed = 0,
        **text: Any,
    ):
        super().__init__(**text)
        self.documents, self.words, self.corpus_seed = documents, words, corpus_seed

    def corpus(self) -> Corpus:
        return open_sample(self.documents, self.words, self.corpus_seed)


def default_root() -> Path:
    """The folder of corpora where the recipe names none: ZOO_DATA, or `data/`."""
    return Path(os.environ.get("ZOO_DATA") or "data")
