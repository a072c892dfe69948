"""Common words: those of a long list that recur most."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from zoo.data.draws import Chance
from zoo.data.text.tokenizer import TextTokenizer
from zoo.data.text.tokens import TokenStream
from zoo.data.text_questions import LONG_NAMES, TextQuestions, TextQuestionsDataset, few_of
from zoo.errors import InputError, Problem
from zoo.field_types import Positive
from zoo.registry import register


class CommonWords(TextQuestions):
    """A list of words in random order, where some stand more often than the others: which ones, in the order
    in which they come first.

    A longer list has more of the other words; how often each stands does not change. Words are invented, of
    three syllables each.

    Source: Hsieh et al. 2024 (arXiv:2404.06654), section 3: ten words 30 times, the others 3 times, English
    ones, numbered; the answer is in any order.

    Args:
        common: words that recur most.
        times: how often each of them stands.
        others: how often each other word does.
    """

    def __init__(self, stream: TokenStream, tokenizer: TextTokenizer, common: int, times: int, others: int):
        super().__init__(stream, tokenizer)
        self.common, self.times, self.others = common, times, others

    def obstacle(self, size: int, split: str) -> str | None:
        most = self.others * sum(map(len, self._words.values()))
        return f"there are words for {most} tokens, and no more" if size > most else None

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        common = few_of(LONG_NAMES, self.common, chance)
        listed = [word for word in common for _ in range(self.times)]
        lines = [f" {word}" for word in chance.few(listed, len(listed))]
        question = "\nWhich words are the most common in this list? They are"
        first = dict.fromkeys(line.strip() for line in lines)
        return lines, question, " " + ", ".join(first)

    def fill(self, room: int, lines: list[list[int]], chance: Chance) -> list[int]:
        known = {tuple(line) for line in lines}
        # At least as many as fit. No tokenizer has one of them as a token.
        drawn = few_of(LONG_NAMES, min(len(LONG_NAMES), len(lines) + 1 + room // (2 * self.others)), chance)
        more: list[list[int]] = []
        for word in map(self._words.__getitem__, drawn):
            if tuple(word) in known:
                continue
            room -= self.others * len(word)
            if room < 0:
                break
            more += [word] * self.others
        # The common words keep their order, which the answer has.
        places = set(chance.distinct(len(lines), len(lines) + len(more)))
        common, other = iter(lines), iter(chance.few(more, len(more)))
        mixed = (next(common if i in places else other) for i in range(len(lines) + len(more)))
        return [token for word in mixed for token in word]

    @cached_property
    def _words(self) -> dict[str, list[int]]:
        encoded = self.tokenizer.encode_batch([f" {word}" for word in LONG_NAMES])
        return {word: one.tolist() for word, one in zip(LONG_NAMES, encoded, strict=True)}


@register.dataset("common_words")
class CommonWordsDataset(TextQuestionsDataset):
    """Name the words of a long list that recur most.

    Args:
        common: words that recur most.
        times: how often each of them stands.
        others: how often each other word does.
        corpus: the corpus whose tokenizer writes the words.
    """

    def __init__(
        self,
        *,
        common: Positive = 3,
        times: Positive = 5,
        others: Positive = 2,
        **text: Any,
    ):
        super().__init__(**text)
        if others >= times:
            message = f"words that stand {others} times are no rarer than those that stand {times} times"
            raise InputError(Problem(message, key="data.others"))
        if common > 100:
            raise InputError(Problem("at most 100 words are asked for", key="data.common"))
        self.common, self.times, self.others = common, times, others

    def questions(self, stream: TokenStream, tokenizer: TextTokenizer) -> CommonWords:
        return CommonWords(stream, tokenizer, self.common, self.times, self.others)
