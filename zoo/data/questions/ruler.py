"""Tasks of the benchmark RULER (Hsieh et al. 2024, arXiv:2404.06654, section 3) in any text.

There names are English words, an instruction comes before the text, and the score counts an answer's numbers
or words in any order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from zoo.data.draws import Chance
from zoo.data.questions.text import LONG_NAMES, NAMES, TextQuestions, TextQuestionsDataset, few_of, number_of
from zoo.errors import InputError, Problem
from zoo.recipe.fields import AtLeastTwo, Positive
from zoo.registry import register

DIGITS = 5  # of the number that a chain of variables begins with


@register.dataset("needle")
class Needles(TextQuestionsDataset):
    """Find numbers that lines of a long text give to names: one of one, one of several, or several.

    `text. The number of belco is 71432. text. What is the number of belco? The number of belco is` is
    answered by ` 71432`. A needle is a line of its own between two words of a window of the text, at a
    uniform place. Names are invented, and differ.

    Args:
        kind: `single`, `multi_key` (one of several names is asked for), `multi_value` (all numbers of one
            name, in the order of the text) or `multi_query` (the numbers of several names, in any order).
        needles: lines with a number, in all kinds but `single`.
        digits: digits of a number.
    """

    def __init__(
        self,
        *,
        kind: Literal["single", "multi_key", "multi_value", "multi_query"] = "single",
        needles: AtLeastTwo = 4,
        digits: Positive = 5,
        **text: Any,
    ):
        super().__init__(**text)
        if needles > len(NAMES):
            raise InputError(Problem(f"there are {len(NAMES)} names, and no more", key="data.needles"))
        self.kind, self.needles, self.digits = kind, needles, digits

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        count = 1 if self.kind == "single" else self.needles
        names = few_of(NAMES, 1 if self.kind == "multi_value" else count, chance)
        numbers = [number_of(self.digits, chance) for _ in range(count)]
        pairs = list(zip(names * (count // len(names)), numbers, strict=True))
        lines = [f"\nThe number of {name} is {number}.\n" for name, number in pairs]
        if self.kind == "multi_value":
            question = f"\nWhat are the numbers of {names[0]}? The numbers of {names[0]} are"
            return lines, question, " " + ", ".join(numbers)
        if self.kind == "multi_query":
            asked = chance.few(pairs, count)
            several = ", ".join(name for name, _ in asked)
            question = f"\nWhat are the numbers of {several}? Their numbers are"
            return lines, question, " " + ", ".join(number for _, number in asked)
        # Lines are in the order of the text, so the answer must not always be in the first one.
        name, number = chance.one(pairs)
        return lines, f"\nWhat is the number of {name}? The number of {name} is", f" {number}"


@register.dataset("variable_tracking")
class Chains(TextQuestionsDataset):
    """Name all variables that have a value, which lines of a long text pass from one to the next.

    `VAR belco = 71432 text VAR arbi = belco text. Which variables are 71432? They are` is answered by
    ` belco, arbi`. Each chain begins with a number and continues in `hops` lines, each of which gives a
    variable the value of the one before. Lines are at uniform places, those of a chain in its order; chains
    are interleaved. The answer is the variables of one chain, in its order.

    Args:
        hops: how often the value is passed on.
        chains: chains of variables, each with its own value; one is asked for.
    """

    def __init__(self, *, hops: Positive = 4, chains: Positive = 1, **text: Any):
        super().__init__(**text)
        if (hops + 1) * chains > len(NAMES):
            message = f"{(hops + 1) * chains} variables: there are names for {len(NAMES)}"
            raise InputError(Problem(message, key="data.hops"))
        self.hops, self.chains = hops, chains

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        length = self.hops + 1
        names = few_of(NAMES, length * self.chains, chance)
        own = [names[start : start + length] for start in range(0, len(names), length)]
        values: dict[str, None] = {}
        while len(values) < self.chains:
            values[number_of(DIGITS, chance)] = None
        left = [
            [f"\nVAR {name} = {given}\n" for name, given in zip(chain, [value, *chain[:-1]], strict=True)]
            for chain, value in zip(own, values, strict=True)
        ]
        lines = []
        while any(left):
            # In proportion to the rest of each chain, so that all ways to interleave are equally likely.
            number = chance.below(sum(map(len, left)))
            chain = next(c for i, c in enumerate(left) if number < sum(map(len, left[: i + 1])))
            lines.append(chain.pop(0))
        asked, value = chance.one(list(zip(own, values, strict=True)))
        return lines, f"\nWhich variables are {value}? They are", " " + ", ".join(asked)


class WordList(TextQuestions):
    """A list of words instead of a text; a longer list has more of the other words."""

    dataset: CommonWords

    def obstacle(self, size: int, split: str) -> str | None:
        most = self.dataset.others * sum(map(len, self._words.values()))
        return f"there are words for {most} tokens, and no more" if size > most else None

    def fill(self, room: int, lines: list[list[int]], chance: Chance) -> list[int]:
        known, others = {tuple(line) for line in lines}, self.dataset.others
        # At least as many as fit: each word is two tokens or more.
        drawn = few_of(LONG_NAMES, min(len(LONG_NAMES), len(lines) + 1 + room // (2 * others)), chance)
        more: list[list[int]] = []
        for word in map(self._words.__getitem__, drawn):
            if tuple(word) in known:
                continue
            room -= others * len(word)
            if room < 0:
                break
            more += [word] * others
        # The common words keep their order, which is that of the answer.
        places = set(chance.distinct(len(lines), len(lines) + len(more)))
        common, other = iter(lines), iter(chance.few(more, len(more)))
        mixed = (next(common if i in places else other) for i in range(len(lines) + len(more)))
        return [token for word in mixed for token in word]

    @cached_property
    def _words(self) -> dict[str, list[int]]:
        encoded = self.tokenizer.encode_batch([f" {word}" for word in LONG_NAMES])
        return {word: one.tolist() for word, one in zip(LONG_NAMES, encoded, strict=True)}


@register.dataset("common_words")
class CommonWords(TextQuestionsDataset):
    """Name the words of a long list that occur most often.

    They are in random order, and the answer has them in the order of their first occurrence. The number of
    occurrences does not grow with the list. Words are invented, of three syllables each. In RULER: ten words
    30 times, the others 3 times, English ones, numbered.

    Args:
        common: number of words that occur most often.
        times: occurrences of each of them.
        others: occurrences of each other word.
        corpus: the corpus whose tokenizer writes the words.
    """

    questions = WordList

    def __init__(self, *, common: Positive = 3, times: Positive = 5, others: Positive = 2, **text: Any):
        super().__init__(**text)
        if others >= times:
            message = f"{others} occurrences of other words are not fewer than {times} of the common ones"
            raise InputError(Problem(message, key="data.others"))
        if common > 100:
            raise InputError(Problem("at most 100 words are asked for", key="data.common"))
        self.common, self.times, self.others = common, times, others

    def draw_text(self, chance: Chance) -> tuple[list[str], str, str]:
        common = few_of(LONG_NAMES, self.common, chance)
        listed = [word for word in common for _ in range(self.times)]
        lines = [f" {word}" for word in chance.few(listed, len(listed))]
        question = "\nWhich words are the most common in this list? They are"
        first = dict.fromkeys(line.strip() for line in lines)
        return lines, question, " " + ", ".join(first)
