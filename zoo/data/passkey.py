"""Passkey: find a number that stands in one sentence of a long text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from zoo.data.algorithmic.answers import Answers
from zoo.data.algorithmic.questions import Questions
from zoo.data.blocks import NOT_SCORED
from zoo.data.draws import Chance
from zoo.data.source import GENERATED_SIZE
from zoo.data.text import Corpus
from zoo.data.text.cache import TokenCache
from zoo.data.text.datasets import TextDataset, TextSource
from zoo.data.text.tokenizer import WHITESPACE, TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.errors import InputError, Problem
from zoo.field_types import Folder, Positive, Seed, Vocabulary
from zoo.recipe import Recipe
from zoo.registry import datasets, register

SENTENCE = "\nThe pass key is ", ". Remember it.\n"
QUESTION = "\nWhat is the pass key? The pass key is "


class Passkey(Questions):
    """`text. The pass key is 71432. Remember it. text. What is the pass key? The pass key is` is answered by
    `71432`. The size is the tokens of text.

    The text is a window of a corpus, begun anywhere. The sentence is a line of its own between two words of
    it; how deep is drawn uniformly. The key occurs nowhere else. Each of its digits is a token of its own,
    whatever numbers the vocabulary holds, as in the LLaMA models that passkeys are mostly reported for.

    Source: Mohtashami & Jaggi 2023 (arXiv:2305.16300), section 4.2. There the text is one paragraph over and
    over, a description of the task comes first, and the sentence says the key twice.

    Args:
        stream: the text that windows are taken from.
        tokenizer: what its tokens stand for.
        digits: digits of a key; five or more, so that a text does not hold all keys by itself.
    """

    def __init__(self, stream: TokenStream, tokenizer: TextTokenizer, digits: int):
        self.stream = stream
        self.digits = digits
        self.before, self.after, self.question = (
            tokenizer.encode(text).tolist() for text in (*SENTENCE, QUESTION)
        )
        self._bytes = tokenizer.token_bytes()
        self._digits = [self._bytes.index(b"%d" % digit) for digit in range(10)]
        # A document's end has no bytes; words part there too.
        self._opens = np.array([not raw or raw[0] in WHITESPACE for raw in self._bytes])

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    def tokens(self, size: int) -> int:
        sentences = len(self.before) + len(self.after) + len(self.question)
        return size + sentences + 2 * self.digits - 1

    def example(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        start = chance.below(len(self.stream) - size + 1)
        text = self.stream[start : start + size].tolist()
        depth = chance.below(size + 1)
        borders = np.concatenate([[0], 1 + np.flatnonzero(self._opens[text[1:]]), [size]])
        border = int(borders[np.abs(borders - depth).argmin()])
        key = self._key(text, chance)
        sentence = [*self.before, *key, *self.after]
        return [*text[:border], *sentence, *text[border:], *self.question], key

    def _key(self, text: list[int], chance: Chance) -> list[int]:
        """The tokens of a key that the text does not hold."""
        written = b"".join([self._bytes[token] for token in text])
        while True:
            key = [self._digits[chance.below(10)] for _ in range(self.digits)]
            if b"".join([self._bytes[token] for token in key]) not in written:
                return key


class Passkeys(Answers):
    """Examples of `Passkey`. A batch also holds `distance` [B], int64: how many tokens the key's first digit
    lies before the token that is to predict it."""

    questions: Passkey

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        made = super().batch(indices)
        before = torch.tensor(self.questions.before)
        found = (made["tokens"].unfold(1, len(before), 1) == before).all(-1).int().argmax(1)
        asked = (made["targets"] != NOT_SCORED).int().argmax(1)
        return made | {"distance": asked - (found + len(before))}


@register.dataset("passkey")
class PasskeyDataset(TextDataset):
    """Find a number that stands in one sentence of a long text.

    Args:
        corpus: the corpus whose text surrounds the sentence.
        digits: digits of the number; a long text is likely to hold every shorter one by itself.
        documents: corpus sample: number of documents.
        words: corpus sample: words per document.
        corpus_seed: corpus sample: its own seed, apart from that of the run.
    """

    gives, source = "answers", "generated, from data.corpus"

    def __init__(
        self,
        *,
        corpus: Literal["wikitext-2", "wikitext-103", "text", "sample"] = "wikitext-2",
        digits: Annotated[Positive, Field(ge=5)] = 5,
        root: Folder = None,
        cache: Folder = None,
        vocab_size: Vocabulary = 8192,
        documents: Annotated[Positive, Field(ge=3)] = 400,
        words: Annotated[Positive, Field(ge=50)] = 3000,
        corpus_seed: Seed = 0,
    ):
        super().__init__(root=root, cache=cache, vocab_size=vocab_size)
        self.digits = digits
        self._corpus = corpus
        self._options = {"documents": documents, "words": words, "corpus_seed": corpus_seed}

    def corpus(self) -> Corpus:
        options = self._options if self._corpus == "sample" else {}
        text = datasets.load(self._corpus)
        return text(root=self.root, cache=self.cache, vocab_size=self.vocab_size, **options).corpus()

    def open(self, recipe: Recipe, write_cache: bool = True) -> PasskeySource:
        return PasskeySource(recipe, self.gives, self.tokens(write_cache))


class PasskeySource(TextSource):
    """Passkeys in the text of a corpus; those of a split in the text of that split."""

    def __init__(self, recipe: Recipe, kind: str, tokens: TokenCache):
        super().__init__(recipe, kind, tokens)
        text = self.fingerprint["corpus"]
        self.fingerprint["corpus"] = f"passkey, digits {recipe.data.digits}, format 2, in {text}"

    def examples(self, split: str, length: int, size: int, sizes: str = "largest") -> Passkeys:
        """As of `GeneratedSource`. Raises InputError also for a length beyond that of the text."""
        stream = self.stream(split)
        questions = Passkey(stream, self.tokenizer, self.recipe.data.digits)
        if questions.largest(length) > len(stream):
            raise InputError(Problem(f"the {split} text has only {len(stream)} tokens"))
        return Passkeys(questions, "passkey", length, size, seed=self.seed(split), split=split, sizes=sizes)

    def dataset(self, split: str) -> Passkeys:
        try:
            return self.examples(split, self.recipe.data.sequence_length, GENERATED_SIZE[split], "all")
        except InputError as error:
            # Known only here: how many tokens the sentence has is the tokenizer's affair.
            message = error.problems[0].message
            raise InputError(Problem(message, key="data.sequence_length")) from error
