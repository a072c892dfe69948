"""Passkey retrieval: find a number that one sentence of a long text contains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field

from zoo.data.blocks import NOT_SCORED
from zoo.data.draws import Chance
from zoo.data.questions.answers import Answers
from zoo.data.questions.text import TextQuestions, TextQuestionsDataset
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.errors import InputError, Problem
from zoo.recipe.fields import Positive
from zoo.registry import register

SENTENCE = "\nThe pass key is ", ". Remember it.\n"
QUESTION = "\nWhat is the pass key? The pass key is "


class PasskeyQuestions(TextQuestions):
    """The sentence is a line of its own between two words of a window. The size is the tokens of that window.

    Each digit is a token of its own in any vocabulary, as in the LLaMA models for which passkeys are mostly
    reported.
    """

    smallest = 1

    def __init__(self, dataset: Passkey, stream: TokenStream, tokenizer: TextTokenizer):
        super().__init__(dataset, stream, tokenizer)
        self.before, self.after, self.question = (
            tokenizer.encode(text).tolist() for text in (*SENTENCE, QUESTION)
        )
        self._bytes = tokenizer.token_bytes()
        digits = [b"%d" % digit for digit in range(10)]
        if missing := [digit.decode() for digit in digits if digit not in self._bytes]:
            message = f"the tokenizer has no token for {', '.join(missing)}; ask needle instead"
            raise InputError(Problem(message))
        self._digits = [*map(self._bytes.index, digits)]

    def tokens(self, size: int) -> int:
        sentences = len(self.before) + len(self.after) + len(self.question)
        return size + sentences + 2 * self.dataset.digits - 1

    def example(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        text = self.window(size, chance)
        border = self.nearest_border(text, chance.below(size + 1))
        key = self._key(text, chance)
        sentence = [*self.before, *key, *self.after]
        return [*text[:border], *sentence, *text[border:], *self.question], key

    def _key(self, text: list[int], chance: Chance) -> list[int]:
        """The tokens of a key that does not occur in the text."""
        written = b"".join([self._bytes[token] for token in text])
        while True:
            key = [self._digits[chance.below(10)] for _ in range(self.dataset.digits)]
            if b"".join([self._bytes[token] for token in key]) not in written:
                return key


class Passkeys(Answers):
    """Examples of `Passkey`. A batch also has `distance` [B], int64: tokens from the key's first digit to the
    position that predicts it."""

    questions: PasskeyQuestions

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        made = super().batch(indices)
        before = torch.tensor(self.questions.before)
        found = (made["tokens"].unfold(1, len(before), 1) == before).all(-1).int().argmax(1)
        asked = (made["targets"] != NOT_SCORED).int().argmax(1)
        return made | {"distance": asked - (found + len(before))}


@register.dataset("passkey")
class Passkey(TextQuestionsDataset):
    """Find a number that one sentence of a long text contains.

    `text. The pass key is 71432. Remember it. text. What is the pass key? The pass key is` is answered by
    `71432`. The text is a window of a corpus from a random place; the sentence is at a uniform depth. The key
    occurs nowhere else.

    Source: Mohtashami & Jaggi 2023 (arXiv:2305.16300), section 4.2. There the text is one paragraph over and
    over, a description of the task comes first, and the sentence says the key twice.

    Args:
        digits: digits of the number; a long text is likely to contain every shorter one by itself.
    """

    questions, drawn_as, format = PasskeyQuestions, Passkeys, 2

    def __init__(self, *, digits: Annotated[Positive, Field(ge=5)] = 5, **text: Any):
        super().__init__(**text)
        self.digits = digits
