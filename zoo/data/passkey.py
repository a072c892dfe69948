"""Passkey: find a number that stands in one sentence of a long text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from zoo.data.algorithmic.answers import Answers
from zoo.data.algorithmic.questions import Questions
from zoo.data.blocks import NOT_SCORED
from zoo.data.draws import Chance
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.data.text_questions import TextQuestionsDataset, text_too_short, tokens_that_open, word_borders
from zoo.errors import InputError, Problem
from zoo.field_types import Positive
from zoo.registry import register

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
        written = [b"%d" % digit for digit in range(10)]
        if missing := [digit.decode() for digit in written if digit not in self._bytes]:
            raise InputError(
                Problem(f"the tokenizer has no token for {', '.join(missing)}; ask needle instead")
            )
        self._digits = [*map(self._bytes.index, written)]
        self._opens = tokens_that_open(tokenizer)

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    def tokens(self, size: int) -> int:
        sentences = len(self.before) + len(self.after) + len(self.question)
        return size + sentences + 2 * self.digits - 1

    def obstacle(self, size: int, split: str) -> str | None:
        return text_too_short(self.stream, size, split)

    def example(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        start = chance.below(len(self.stream) - size + 1)
        text = self.stream[start : start + size].tolist()
        depth = chance.below(size + 1)
        borders = word_borders(text, self._opens)
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
class PasskeyDataset(TextQuestionsDataset):
    """Find a number that stands in one sentence of a long text.

    Args:
        digits: digits of the number; a long text is likely to hold every shorter one by itself.
    """

    drawn_as, format = Passkeys, 2

    def __init__(self, *, digits: Annotated[Positive, Field(ge=5)] = 5, **text: Any):
        super().__init__(**text)
        self.digits = digits

    def questions(self, stream: TokenStream, tokenizer: TextTokenizer) -> Passkey:
        return Passkey(stream, tokenizer, self.digits)
